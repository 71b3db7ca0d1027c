// SPDX-License-Identifier: Apache-2.0
// What every scheduler of batches does around an executor: waiting for a moment, running a batch whatever the executor
// throws, and making a request's response of its item. Used by the batching and the sequence scheduler.
// Thread safety: free functions without state.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "server/schedule/batch_executor.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/request.h"
#include "server/schedule/timeline.h"

namespace flywheel::schedule {

// Until `ready`, or until the monotonic clock reads `when_ns`; kNever: without end.
template <class Predicate>
void wait_until(std::condition_variable& cv, std::unique_lock<std::mutex>& lock, int64_t when_ns, Predicate ready) {
  if (when_ns == kNever) {
    cv.wait(lock, ready);
  } else {
    cv.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(when_ns)), ready);
  }
}

// `length_ns` from now; kNever where that lies beyond the clock.
int64_t deadline(int64_t now_ns, int64_t length_ns);

// What the executor throws fails the batch, as what it returns does.
Status execute_batch(BatchExecutor& executor, Batch& batch, std::string_view model_name);

// The last response of the item's request, taken out of the item once its batch has ended with `batch_status`.
InferResponse take_response(BatchItem& item, const Status& batch_status);
// Stamps what the batch's end says of a request's times.
void stamp(Timeline& timeline, const Batch& batch, int64_t now_ns);

}  // namespace flywheel::schedule
