// SPDX-License-Identifier: Apache-2.0
// Runs a stateful model's requests: those of one sequence on one instance, in order, with the control tensors and the
// states that the model takes. What runs when is the sequence former's decision; this gives it threads: one for each
// instance and one that keeps time. The repository makes one for each version of a model with sequence_batching.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"
#include "server/schedule/request_runner.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/sequence_tensors.h"

namespace flywheel::schedule {

class SequenceScheduler : public RequestRunner {
 public:
  // One instance for each executor; they were made with config::with_server_tensors(config).
  static Result<std::unique_ptr<SequenceScheduler>> create(const config::ModelConfig& config, SequenceTensors tensors,
                                                           std::vector<std::unique_ptr<BatchExecutor>> executors,
                                                           const SchedulerOptions& options = {});
  ~SequenceScheduler() override;  // stops
  SequenceScheduler(const SequenceScheduler&) = delete;
  SequenceScheduler& operator=(const SequenceScheduler&) = delete;

  void enqueue(RequestPtr request) override;
  void stop(int64_t grace_ns) override;
  std::shared_ptr<ModelStatistics> statistics() const override;
  size_t queued_requests() const override;

 private:
  class Core;
  explicit SequenceScheduler(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace flywheel::schedule
