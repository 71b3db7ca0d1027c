// SPDX-License-Identifier: Apache-2.0
// A model's tensors that clients neither send nor get: the controls and states of sequences, and what is computed for
// ragged batches. Clients see a configuration without them; backends and instances get one with them.
// Thread safety: pure functions.
#pragma once

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/config/model_description.h"

namespace inference {
class ModelConfig;
}

namespace flywheel::config {

// With controls and states as inputs behind the clients', in the configuration's order, and state outputs behind its
// outputs.
ModelConfig with_server_tensors(const ModelConfig& config);

// What is left of the model for clients to see. An error when the model cannot take what the configuration would feed
// it.
Result<ModelDescription> without_server_tensors(const inference::ModelConfig& message, const ModelDescription& model);

}  // namespace flywheel::config
