// SPDX-License-Identifier: Apache-2.0
// How an ensemble reaches the models that it is made of: by name, anew for each request, so that a model may be
// replaced while ensembles run. The repository implements it over its table. Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/request.h"

namespace flywheel::ensemble {

struct StepModel {
  std::shared_ptr<const void> handle;           // keeps the version alive; what it is only the source knows
  const config::ModelConfig* config = nullptr;  // as long as `handle`
};

class StepModels {
 public:
  virtual ~StepModels() = default;
  // `version` below 0: the newest that is ready.
  virtual Result<StepModel> find(std::string_view name, int64_t version) const = 0;
  // Holds the request against the model's configuration and makes it ready for infer().
  virtual Status prepare(const StepModel& model, schedule::InferRequest& request) const = 0;
  // Answers through the request's on_response.
  virtual void infer(const StepModel& model, schedule::RequestPtr request) const = 0;
};

}  // namespace flywheel::ensemble
