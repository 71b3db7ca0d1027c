// SPDX-License-Identifier: Apache-2.0
// A request as a native backend sees it, during one execute: the functions of flywheel_host work on these. Owned by the
// instance's execute. Threads: the instance's, or those that the library lets work for it, one at a time.
#pragma once

#include <string>
#include <vector>

#include "flywheel/backend.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"

// Named by the C interface.
struct flywheel_request {
  flywheel_request(const flywheel::config::ModelConfig& model_config, flywheel::schedule::BatchItem& batch_item);

  const flywheel::config::ModelConfig& config;
  flywheel::schedule::BatchItem& item;
  std::vector<flywheel_tensor> inputs;
  flywheel::Status failure;
  std::vector<flywheel::schedule::OutputTensor> outputs;

  // Fills the item from what the library has given.
  void finish();
};

namespace flywheel::native {

const flywheel_host& host();

}  // namespace flywheel::native
