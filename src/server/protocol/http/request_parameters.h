// SPDX-License-Identifier: Apache-2.0
// The parameters of an inference request as JSON: those that the protocol knows go where they belong in the request,
// others to the model. Included by sources only. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "flywheel/status.h"
#include "server/protocol/http/json_reader.h"
#include "server/schedule/request.h"

namespace flywheel::http {

// `binary_by_default`: binary_data_output.
Status read_request_parameter(std::string_view key, ondemand::value value, schedule::InferRequest& request,
                              bool& binary_by_default);

// ",\"parameters\":{...}", or nothing when there are none.
void append_parameters(std::string& json, const schedule::Parameters& parameters);
void append_parameter_value(std::string& json, const schedule::ParameterValue& value);

}  // namespace flywheel::http
