// SPDX-License-Identifier: Apache-2.0
// What the behaviour tests of this folder share: configurations from the text that a user would write, times in
// readable units, arrivals in one line each.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/config/parse_config.h"
#include "server/schedule/simulator.h"

namespace flywheel::schedule {

inline constexpr int64_t kUs = 1'000;
inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// A model of `max_batch_size` rows with the given text as its config.pbtxt, completed as the server does it.
inline config::ModelConfig model_config(const std::string& text, int32_t max_batch_size) {
  config::ModelDescription model;
  model.inputs = {{"x", config::DataType::kFp32, {-1, -1}}};
  model.outputs = {{"y", config::DataType::kFp32, {-1, -1}}};
  model.max_batch_size = max_batch_size;
  auto parsed = config::parse_config(text, "config.pbtxt", "m");
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  auto completed = config::complete_config(*parsed, model);
  EXPECT_TRUE(completed.is_ok()) << completed.status().message();
  return *completed;
}

inline config::ModelConfig batching_config(const std::string& dynamic_batching, int32_t max_batch_size) {
  return model_config("dynamic_batching { " + dynamic_batching + " }", max_batch_size);
}

inline SimulatedArrival arrival(int64_t at_ns, int64_t batch_size = 1) {
  SimulatedArrival made;
  made.at_ns = at_ns;
  made.batch_size = batch_size;
  return made;
}

inline SimulatedArrival arrival_of_shape(int64_t at_ns, int64_t batch_size, int64_t size) {
  SimulatedArrival made = arrival(at_ns, batch_size);
  made.signature = {1, size};
  return made;
}

inline SimulatedArrival prioritized(int64_t at_ns, int64_t batch_size, uint64_t priority, uint64_t timeout_us = 0) {
  SimulatedArrival made = arrival(at_ns, batch_size);
  made.priority = priority;
  made.timeout_us = timeout_us;
  return made;
}

inline std::vector<SimulatedArrival> burst(size_t count, int64_t at_ns = 0, int64_t batch_size = 1) {
  return std::vector<SimulatedArrival>(count, arrival(at_ns, batch_size));
}

inline SimulationResult run(const config::ModelConfig& config, const std::vector<SimulatedArrival>& arrivals,
                            const SimulationOptions& options = {}) {
  auto result = simulate(config, arrivals, options);
  EXPECT_TRUE(result.is_ok()) << result.status().message();
  return std::move(*result);
}

// Until `count` requests are queued, none is executed: what TRITONSERVER_DELAY_SCHEDULER does there.
inline SimulationOptions held_until(uint64_t count) {
  SimulationOptions options;
  options.policy.hold_until_queued = count;
  return options;
}

inline SimulationOptions executing_for(int64_t duration_ns, int instances = 1) {
  SimulationOptions options;
  options.instances = instances;
  options.execution_ns = [duration_ns](const SimulatedBatch&) { return duration_ns; };
  return options;
}

}  // namespace flywheel::schedule
