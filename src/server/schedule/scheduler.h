// SPDX-License-Identifier: Apache-2.0
// The production loop of one loaded model version: requests in, batches to the instances, answers out. The repository
// makes one for each version that it serves and stops it to unload; protocols enqueue. Threads: one for each instance
// and one that keeps time. Idle instances take turns at forming the next batch, so a request meets no extra thread on
// its way; what waits is rejected on time even while all instances are busy.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/arbiter.h"
#include "server/schedule/batch_executor.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/request.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

struct SchedulerOptions {
  // Null: batches run as soon as an instance is free. Must outlive the scheduler.
  DeviceArbiter* arbiter = nullptr;
  double arbiter_weight = 1;
  // A batch that runs longer is answered as failed and gives the device back; its instance stays out of service until
  // the executor returns. 0: wait forever.
  int64_t execution_timeout_ns = 120'000'000'000;
  // The engine's measured latencies, for policies that use them.
  LatencyCurve latency_curve;
  PolicyOptions policy;
};

class Scheduler {
 public:
  // One instance for each executor. The policy follows from the configuration.
  static Result<std::unique_ptr<Scheduler>> create(const config::ModelConfig& config,
                                                   std::vector<std::unique_ptr<BatchExecutor>> executors,
                                                   const SchedulerOptions& options = {});
  ~Scheduler();  // stops
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Takes the request and answers it exactly once through its on_response: with the result, or why there is none.
  // Queueing takes a microsecond and never waits for an execution. Requests refused here (stopped, queue full, too
  // large a batch) are answered before it returns.
  void enqueue(RequestPtr request);

  // Refuses new requests, executes at once all that wait, without waiting for batches to fill, and returns when every
  // accepted request is answered. What is not done after `grace_ns` is answered as unavailable. Any later call waits
  // too.
  void stop(int64_t grace_ns = 30'000'000'000);

  // Lives as long as any holder: a request's last answer may come after the scheduler is gone from the repository.
  std::shared_ptr<ModelStatistics> statistics() const;
  // Requests waiting for execution.
  size_t queued_requests() const;

 private:
  class Core;
  explicit Scheduler(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace flywheel::schedule
