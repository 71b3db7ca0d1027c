// SPDX-License-Identifier: Apache-2.0
// What a trace records of a request whatever the protocol. HTTP and gRPC call these; what they send and receive, they
// stamp themselves. Threads: a Trace's.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/schedule/request.h"
#include "server/settings/tracer.h"

namespace flywheel::settings {

// Before the model has the request: whose it is, and its inputs.
void trace_request(Trace& trace, std::string_view model_name, int64_t model_version,
                   const schedule::InferRequest& request);
// Each response: its outputs, and with the last one how the request went through the server.
void trace_response(Trace& trace, const schedule::InferRequest& request, const schedule::InferResponse& response);

}  // namespace flywheel::settings
