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
#include "server/schedule/request_runner.h"

namespace flywheel::schedule {

struct SchedulerOptions {
  // Null: batches run as soon as an instance is free. Must outlive the scheduler.
  DeviceArbiter* arbiter = nullptr;
  double arbiter_weight = 1;
  DeviceArbiter::Needs arbiter_needs;
  // A batch that runs longer is answered as failed and gives the device back; its instance stays out of service until
  // the executor returns. 0: wait forever.
  int64_t execution_timeout_ns = 120'000'000'000;
  // The engine's measured latencies, for policies that use them.
  LatencyCurve latency_curve;
  PolicyOptions policy;
  std::shared_ptr<ModelStatistics> statistics;  // of the instances before these, to go on counting; null: from zero
};

class Scheduler : public RequestRunner {
 public:
  // One instance for each executor. The policy follows from the configuration.
  static Result<std::unique_ptr<Scheduler>> create(const config::ModelConfig& config,
                                                   std::vector<std::unique_ptr<BatchExecutor>> executors,
                                                   const SchedulerOptions& options = {});
  ~Scheduler() override;  // stops
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void enqueue(RequestPtr request) override;
  void stop(int64_t grace_ns) override;
  std::shared_ptr<ModelStatistics> statistics() const override;
  size_t queued_requests() const override;

 private:
  class Core;
  explicit Scheduler(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace flywheel::schedule
