// SPDX-License-Identifier: Apache-2.0
#include "server/settings/request_trace.h"

namespace flywheel::settings {

void trace_request(Trace& trace, std::string_view model_name, int64_t model_version,
                   const schedule::InferRequest& request) {
  trace.set_request(model_name, model_version, request.id);
  if (!trace.wants_tensors()) return;
  for (const schedule::InputView& input : request.inputs) {
    trace.add_tensor("TENSOR_QUEUE_INPUT", input.name, input.data_type, input.shape, input.bytes);
  }
}

void trace_response(Trace& trace, const schedule::InferRequest& request, const schedule::InferResponse& response) {
  if (response.final) {
    trace.stamp(request.timeline);
    trace.stamp("INFER_RESPONSE_COMPLETE", schedule::monotonic_now_ns());
  }
  if (!trace.wants_tensors()) return;
  for (const schedule::OutputTensor& output : response.outputs) {
    trace.add_tensor("TENSOR_BACKEND_OUTPUT", output.name, output.data_type, output.shape, output.bytes);
  }
}

}  // namespace flywheel::settings
