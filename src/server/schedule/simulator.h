// SPDX-License-Identifier: Apache-2.0
// A model server in virtual time: the production queue, policy and order of answers, with scripted arrivals and
// instances whose executions take as long as a function says. Tests state in it how batching behaves, exactly and in no
// time; a policy is tried out in it before it is trusted. Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

struct SimulatedArrival {
  int64_t at_ns = 0;
  int64_t batch_size = 1;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  std::vector<int64_t> signature;  // of its shapes
  std::vector<std::string> requested_outputs;
  int64_t cancel_at_ns = kNever;
};

struct SimulatedBatch {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int instance = 0;
  int64_t rows = 0;
  std::vector<size_t> requests;  // indices of arrivals, in the batch's order
  DispatchReason reason = DispatchReason::kNoDelay;
};

struct SimulatedAnswer {
  int64_t at_ns = -1;  // -1: never
  int count = 0;       // how often it was answered
  Status status;
  FailureReason reason = FailureReason::kNone;
};

struct SimulationOptions {
  int instances = 1;
  // How long a batch takes; `start_ns`, `instance`, `rows` and `requests` are set.
  std::function<int64_t(const SimulatedBatch&)> execution_ns = [](const SimulatedBatch&) { return int64_t{0}; };
  std::function<bool(const SimulatedBatch&)> fails = [](const SimulatedBatch&) { return false; };
  LatencyCurve latency_curve;
  PolicyOptions policy;
  int64_t stop_at_ns = kNever;        // the model begins to drain
  std::vector<int64_t> sample_at_ns;  // when to take SimulationResult::samples, after all else of that time
};

struct SimulationResult {
  std::vector<SimulatedBatch> batches;   // in order of their start
  std::vector<SimulatedAnswer> answers;  // by arrival
  std::vector<size_t> answer_order;      // arrivals in the order in which they were answered
  std::vector<StatisticsSnapshot> samples;
  StatisticsSnapshot statistics;  // at the end

  // How many rows each batch had, in order of their start.
  std::vector<int64_t> batch_rows() const;
};

// Runs until all is answered.
Result<SimulationResult> simulate(const config::ModelConfig& config, const std::vector<SimulatedArrival>& arrivals,
                                  const SimulationOptions& options = {});

}  // namespace flywheel::schedule
