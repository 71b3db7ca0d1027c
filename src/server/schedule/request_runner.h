// SPDX-License-Identifier: Apache-2.0
// What takes a model's requests and answers each: the batching scheduler, or whatever else a model's kind needs (a
// graph of other models, sequences). A served model owns one. Any thread may call any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/schedule/request.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

inline constexpr int64_t kDefaultGraceNs = 30'000'000'000;

class RequestRunner {
 public:
  virtual ~RequestRunner() = default;
  // Takes the request and answers it through its on_response: with the result, or why there is none. Queueing takes
  // microseconds and never waits for an execution. Requests refused here (stopped, queue full, too large a batch) are
  // answered before it returns.
  virtual void enqueue(RequestPtr request) = 0;
  // Refuses new requests, executes at once all that wait, without waiting for batches to fill, and returns when every
  // accepted request is answered. What is not done after `grace_ns` is answered as unavailable. Any later call waits
  // too.
  virtual void stop(int64_t grace_ns) = 0;
  // Lives as long as any holder: a request's last answer may come after the runner is gone from the repository.
  virtual std::shared_ptr<ModelStatistics> statistics() const = 0;
  // Requests waiting for execution.
  virtual size_t queued_requests() const = 0;
};

}  // namespace flywheel::schedule
