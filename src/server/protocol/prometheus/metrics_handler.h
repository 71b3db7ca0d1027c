// SPDX-License-Identifier: Apache-2.0
// GET /metrics, for an HttpServer of its own on the metrics port, so that scraping and inference do not meet.
// Threads: as any Handler; what it reads is read through `collect`.
#pragma once

#include <functional>
#include <string>

#include "server/protocol/http/exchange.h"

namespace flywheel::prometheus {

class MetricsHandler : public http::Handler {
 public:
  // `collect` gives the text.
  explicit MetricsHandler(std::function<std::string()> collect) : collect_(std::move(collect)) {}

  http::BodyPlan plan_body(const http::RequestHead&) override { return {64 << 10, 0}; }
  http::Response body_too_large(const http::RequestHead&, uint64_t) override {
    return http::error_response(400, "a request for metrics needs no body");
  }
  bool is_slow(const http::Exchange&) override { return false; }
  void handle(const http::ExchangePtr& exchange) override;

 private:
  const std::function<std::string()> collect_;
};

}  // namespace flywheel::prometheus
