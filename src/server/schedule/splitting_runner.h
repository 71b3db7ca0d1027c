// SPDX-License-Identifier: Apache-2.0
// A model's runner behind a saw: a request with more rows than the model takes at once becomes several, and their
// outputs are joined into its answer. The repository puts it before the runner of a model whose parameters ask for it
// (split_large_requests). Parts share the request's bytes; outputs are copied once. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "server/config/model_config.h"
#include "server/schedule/request_runner.h"

namespace flywheel::schedule {

class SplittingRunner : public RequestRunner {
 public:
  // REQUIRES: config.max_batch_size > 0; no inputs of strings, whose rows have no fixed size.
  SplittingRunner(const config::ModelConfig& config, std::unique_ptr<RequestRunner> model)
      : max_batch_size_(config.max_batch_size), model_(std::move(model)) {}

  void enqueue(RequestPtr request) override;
  void stop(int64_t grace_ns) override { model_->stop(grace_ns); }
  std::shared_ptr<ModelStatistics> statistics() const override { return model_->statistics(); }
  size_t queued_requests() const override { return model_->queued_requests(); }

 private:
  const int64_t max_batch_size_;
  const std::unique_ptr<RequestRunner> model_;
};

}  // namespace flywheel::schedule
