// SPDX-License-Identifier: Apache-2.0
// A model's runner behind a ruler: inputs of variable length are padded with zeros to the next of a few lengths, so
// that requests of about the same length share a batch, and outputs are cut back to the request's own length. The
// repository puts it before the runner of a model whose parameters ask for it (length_buckets). For models that take a
// mask, or whose padding does not change the rest. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/request_runner.h"

namespace flywheel::schedule {

class PaddingRunner : public RequestRunner {
 public:
  // `check`: whether the model takes the padded request; one that it does not take goes as it came. May be empty.
  PaddingRunner(const config::ModelConfig& config, std::unique_ptr<RequestRunner> model,
                std::function<Status(const InferRequest&)> check);

  void enqueue(RequestPtr request) override;
  void stop(int64_t grace_ns) override { model_->stop(grace_ns); }
  std::shared_ptr<ModelStatistics> statistics() const override { return model_->statistics(); }
  size_t queued_requests() const override { return model_->queued_requests(); }

 private:
  // A tensor with one variable dimension, by its place in the whole shape.
  struct Variable {
    std::string name;
    size_t dim = 0;
  };
  const Variable* find(const std::vector<Variable>& variables, const std::string& name) const;
  int64_t length_of(const InferRequest& request) const;

  const bool batched_;
  const std::vector<int64_t> buckets_;
  std::vector<Variable> inputs_;
  std::vector<Variable> outputs_;
  const std::unique_ptr<RequestRunner> model_;
  const std::function<Status(const InferRequest&)> check_;
};

}  // namespace flywheel::schedule
