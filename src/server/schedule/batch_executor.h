// SPDX-License-Identifier: Apache-2.0
// The door between scheduling and running. The repository implements it over the runtime, one object for each instance
// of a model; the scheduler owns the objects and calls execute from that instance's thread alone, one batch at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flywheel/status.h"
#include "server/schedule/request.h"

namespace flywheel::schedule {

struct BatchItem {
  // Read inputs, batch_size, requested_outputs; change nothing. Alive until execute returns.
  const InferRequest* request = nullptr;
  // The executor's answer for this request. A failure here fails this request alone.
  Status status;
  std::vector<OutputTensor> outputs;
  Parameters parameters;  // of the response
  // For an executor that gives this request's responses itself, with respond(): it keeps `shared`, which is null
  // outside of the scheduler, and sets `deferred`. Its last response may come after execute has returned; what is
  // counted is `status`, when it returns.
  RequestPtr shared;
  bool deferred = false;
};

struct Batch {
  std::vector<BatchItem> items;  // in the order in which rows are to be laid out
  int64_t batch_size = 0;        // rows in all: the sum over the items
  // For the executor to stamp (monotonic_now_ns); a step that it leaves at 0 counts as part of the next one.
  int64_t input_done_ns = 0;
  int64_t compute_done_ns = 0;
};

class BatchExecutor {
 public:
  virtual ~BatchExecutor() = default;
  // Runs the batch and fills every item's outputs or status. A failure that is returned fails the whole batch and no
  // other.
  virtual Status execute(Batch& batch) = 0;
  // The batch that execute runs has been answered without it, because it takes too long: to return soon would be good.
  // From another thread than execute, with the scheduler's lock held: quick, and calls nothing of the scheduler's.
  virtual void give_up() {}
  // After the last execute. Returns when all deferred requests are answered; those that are not at `until_ns`
  // (monotonic) it answers as unavailable.
  virtual void drain(int64_t until_ns) { (void)until_ns; }
};

}  // namespace flywheel::schedule
