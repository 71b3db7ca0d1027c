// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/prometheus/metrics_handler.h"

namespace flywheel::prometheus {

void MetricsHandler::handle(const http::ExchangePtr& exchange) {
  const http::RequestHead& head = exchange->head();
  if (head.method != http::Method::kGet) return exchange->respond(http::error_response(405, "Method Not Allowed"));
  if (head.path != "/metrics" && head.path != "/metrics/") {
    return exchange->respond(http::error_response(404, "Not Found"));
  }
  http::Response response;
  response.content_type = http::kPrometheusText;
  response.body = collect_();
  exchange->respond(std::move(response));
}

}  // namespace flywheel::prometheus
