// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/execution.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace flywheel::schedule {

int64_t deadline(int64_t now_ns, int64_t length_ns) {
  return length_ns > kNever - now_ns ? kNever : now_ns + length_ns;
}

Status execute_batch(BatchExecutor& executor, Batch& batch, std::string_view model_name) {
  try {
    return executor.execute(batch);
  } catch (const std::exception& error) {
    return internal_error(fmt::format("executing model '{}' threw: {}", model_name, error.what()));
  } catch (...) {
    return internal_error(fmt::format("executing model '{}' threw an unknown exception", model_name));
  }
}

InferResponse take_response(BatchItem& item, const Status& batch_status) {
  InferResponse response;
  response.status = batch_status.is_ok() ? std::move(item.status) : batch_status;
  if (response.status.is_ok()) {
    response.outputs = std::move(item.outputs);
    response.parameters = std::move(item.parameters);
  } else {
    response.reason = FailureReason::kBackend;
  }
  return response;
}

void stamp(Timeline& timeline, const Batch& batch, int64_t now_ns) {
  timeline.compute_done_ns = batch.compute_done_ns != 0 ? batch.compute_done_ns : now_ns;
  timeline.input_done_ns = batch.input_done_ns != 0 ? batch.input_done_ns : timeline.batch_formed_ns;
  timeline.output_done_ns = now_ns;
}

}  // namespace flywheel::schedule
