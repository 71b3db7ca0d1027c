// SPDX-License-Identifier: Apache-2.0
// Runs a model's model_warmup samples on one instance before it serves, so that no client pays for first-time work.
// Called by the model loader; the instance is not in use yet.
#pragma once

#include <string>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"

namespace flywheel::repository {

// A failing sample is a failing load; the message names it.
Status run_warmups(const config::ModelConfig& config, const std::string& model_folder,
                   schedule::BatchExecutor& instance);

}  // namespace flywheel::repository
