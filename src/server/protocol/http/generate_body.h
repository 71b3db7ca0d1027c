// SPDX-License-Identifier: Apache-2.0
// Flat JSON in and out, as Triton's generate extension has it: a member with an input's name is that input, "id" is the
// request's id, members of "parameters" and all others are parameters; in answers each output and parameter is a
// member. Included by sources only. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/protocol/http/body.h"
#include "server/repository/served_model.h"
#include "server/schedule/request.h"

namespace flywheel::http {

// `max_input_bytes` bounds all tensors together.
Status read_generate_body(const Body& body, const config::ModelConfig& config, uint64_t max_input_bytes,
                          schedule::InferRequest& request);

// Appends {"<output>": ..., "model_name": ..., ...} with the members in order of their names, as Triton does.
Status append_generate_response(std::string& json, const repository::ServedModel& model, const std::string& id,
                                const schedule::InferResponse& response);

}  // namespace flywheel::http
