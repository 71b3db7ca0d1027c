// SPDX-License-Identifier: Apache-2.0
// From the configuration's message to the struct that the server reads. Used by parsing and by completion alone;
// everything else reads the struct. Thread safety: pure functions.
#pragma once

#include <memory>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/config/model_config.pb.h"

namespace flywheel::config {

// Takes the message as it stands: neither fills in nor checks anything.
ModelConfig read_message(std::shared_ptr<const inference::ModelConfig> message);

// What can be wrong with a completed configuration by itself, in the words that users of config.pbtxt know.
Status validate_message(const inference::ModelConfig& message);
// From the parameters; an error names the one that makes no sense.
Result<BatchingOptions> read_batching_options(const inference::ModelConfig& message);

// Parts of it; validate_message calls them.
Status validate_ensemble(const inference::ModelConfig& message);
Status validate_sequence_batching(const inference::ModelSequenceBatching& batching, int32_t max_batch_size);

}  // namespace flywheel::config
