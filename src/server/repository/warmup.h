// SPDX-License-Identifier: Apache-2.0
// Runs a model's model_warmup samples on one instance before it serves, so that no client pays for first-time work.
// Called by the model loader; the instance is not in use yet.
#pragma once

#include <functional>
#include <string>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"
#include "server/schedule/sequence_tensors.h"

namespace flywheel::repository {

// A failing sample is a failing load; the message names it. `sequences`: a stateful model's controls and states, as at
// the start of a sequence; null for others. Gives up, with kCancelled, once `keep_going` returns false.
Status run_warmups(const config::ModelConfig& config, const std::string& model_folder,
                   const schedule::SequenceTensors* sequences, const std::function<bool()>& keep_going,
                   schedule::BatchExecutor& instance);

}  // namespace flywheel::repository
