// SPDX-License-Identifier: Apache-2.0
// Prometheus's text format, out of counts that others keep: Triton's metrics under Triton's names, and what Triton
// lacks under flywheel_ names. Rendered when somebody asks; nothing is done for it while requests are served. Thread
// safety: pure functions of snapshots.
#pragma once

#include <span>
#include <string>

#include "server/protocol/grpc/options.h"
#include "server/protocol/http/options.h"
#include "server/repository/model_table.h"
#include "server/repository/served_model.h"

namespace flywheel::prometheus {

struct MetricsInput {
  std::span<const repository::ServedModelPtr> models;
  http::HttpCounts http;
  grpc::GrpcCounts grpc;
  bool ready = false;
};

std::string render_metrics(const MetricsInput& input);

}  // namespace flywheel::prometheus
