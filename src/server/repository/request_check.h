// SPDX-License-Identifier: Apache-2.0
// Whether a request fits a model, and the form in which instances take it: inputs in the configuration's order, batch
// size and signature filled in. Every protocol calls it before it enqueues. The texts are Triton's, with the request's
// id before them.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/request.h"

namespace flywheel::repository {

Status check_request(const config::ModelConfig& config, schedule::InferRequest& request);

// The request's one input, from bytes alone: the model must have one input with one unknown extent at most.
Status add_raw_input(const config::ModelConfig& config, std::span<const std::byte> bytes,
                     schedule::InferRequest& request);

// "[1,3,224,224]".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace flywheel::repository
