// SPDX-License-Identifier: Apache-2.0
// What holds for every configuration and every traffic, over random ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

struct Scenario {
  std::string text;
  config::ModelConfig config;
  std::vector<SimulatedArrival> arrivals;
  SimulationOptions options;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool once_in(int64_t n) { return in(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

std::string random_queue_policy(Random& random, bool may_delay) {
  return fmt::format(
      "timeout_action: {} default_timeout_microseconds: {} allow_timeout_override: {} max_queue_size: {}",
      may_delay && random.once_in(2) ? "DELAY" : "REJECT", random.once_in(2) ? 0 : random.in(1, 20'000),
      random.once_in(2), random.once_in(2) ? 0 : random.in(1, 20));
}

Scenario random_scenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  const int64_t max_batch = random.in(1, 16);
  const bool ordered = random.once_in(4);
  const int64_t levels = ordered ? 0 : random.in(0, 4);
  std::string& text = scenario.text;
  text = fmt::format("max_queue_delay_microseconds: {} preserve_ordering: {} priority_levels: {} ",
                     random.once_in(2) ? 0 : random.in(1, 5000), ordered, levels);
  if (levels > 0) text += fmt::format("default_priority_level: {} ", random.in(1, levels));
  for (int64_t i = random.in(0, 3); i > 0; --i)
    text += fmt::format("preferred_batch_size: {} ", random.in(1, max_batch));
  text += fmt::format("default_queue_policy {{ {} }} ", random_queue_policy(random, !ordered));
  for (int64_t level = 1; level <= levels; ++level)
    if (random.once_in(2))
      text +=
          fmt::format("priority_queue_policy {{ key: {} value {{ {} }} }} ", level, random_queue_policy(random, true));
  scenario.config = model_config(
      fmt::format("max_batch_size: {} dynamic_batching {{ {} }} parameters {{ key: \"priority_aging_microseconds\" "
                  "value {{ string_value: \"{}\" }} }}",
                  max_batch, text, random.in(0, 2) * 1000),
      16);

  const int64_t gap_ns = random.in(1, 2000) * kUs;
  const int64_t shapes = random.in(1, 3);
  int64_t at_ns = kMs;
  for (int i = 0; i < 200; ++i) {
    if (!random.once_in(4)) at_ns += random.in(0, gap_ns);
    SimulatedArrival made =
        arrival_of_shape(at_ns, random.once_in(3) ? random.in(1, max_batch) : 1, random.in(1, shapes));
    made.priority = static_cast<uint64_t>(random.in(0, 5));
    made.timeout_us = random.once_in(2) ? 0 : static_cast<uint64_t>(random.in(1, 10'000));
    if (random.once_in(10)) made.cancel_at_ns = at_ns + random.in(0, 10'000) * kUs;
    scenario.arrivals.push_back(made);
  }
  scenario.options.instances = static_cast<int>(random.in(1, 3));
  const int64_t fixed_ns = random.in(0, 3000) * kUs;
  const int64_t row_ns = random.in(0, 500) * kUs;
  scenario.options.execution_ns = [=](const SimulatedBatch& batch) {
    return fixed_ns + batch.rows * row_ns + (batch.requests[0] % 7 == 0 ? 5 * kMs : 0);
  };
  scenario.options.fails = [](const SimulatedBatch& batch) { return batch.requests[0] % 11 == 10; };
  if (random.once_in(5)) scenario.options.stop_at_ns = at_ns / 2;
  return scenario;
}

uint64_t level_of(const config::DynamicBatching& batching, const SimulatedArrival& arrival) {
  if (batching.priority_levels == 0) return 0;
  return arrival.priority == 0 || arrival.priority > batching.priority_levels ? batching.default_priority_level
                                                                              : arrival.priority;
}

// When the request's time in the queue runs out.
int64_t expiry_of(const config::DynamicBatching& batching, const SimulatedArrival& arrival) {
  const config::QueuePolicy& policy = batching.queue_policy(level_of(batching, arrival));
  uint64_t timeout_us = policy.default_timeout_us;
  if (timeout_us == 0) return kNever;
  if (policy.allow_timeout_override && arrival.timeout_us != 0) timeout_us = std::min(timeout_us, arrival.timeout_us);
  return arrival.at_ns + static_cast<int64_t>(timeout_us) * kUs;
}

void check_answers(const Scenario& scenario, const SimulationResult& result) {
  uint64_t successes = 0;
  for (size_t i = 0; i < scenario.arrivals.size(); ++i) {
    EXPECT_EQ(result.answers[i].count, 1) << "request " << i;
    successes += result.answers[i].status.is_ok() ? 1 : 0;
  }
  EXPECT_EQ(result.statistics.success.count, successes);
  EXPECT_EQ(result.statistics.success.count + result.statistics.fail.count, scenario.arrivals.size());
  EXPECT_EQ(result.statistics.pending_requests, 0);
  EXPECT_EQ(result.statistics.executing_batches, 0);
  EXPECT_EQ(result.statistics.execution_count, result.batches.size());
}

void check_batches(const Scenario& scenario, const SimulationResult& result) {
  std::map<int, int64_t> free_from;
  std::set<size_t> executed;
  for (const SimulatedBatch& batch : result.batches) {
    EXPECT_LE(batch.rows, scenario.config.max_batch_size);
    EXPECT_GE(batch.start_ns, free_from[batch.instance]) << "two batches at once on instance " << batch.instance;
    free_from[batch.instance] = batch.end_ns;
    int64_t rows = 0;
    for (size_t request : batch.requests) {
      EXPECT_TRUE(executed.insert(request).second) << "request " << request << " was executed twice";
      rows += scenario.arrivals[request].batch_size;
      EXPECT_EQ(scenario.arrivals[request].signature, scenario.arrivals[batch.requests[0]].signature);
      EXPECT_GE(scenario.arrivals[request].cancel_at_ns, batch.start_ns) << "it had been cancelled";
    }
    EXPECT_EQ(rows, batch.rows);
  }
}

// Within a level, requests leave in order of arrival, but for those that a DELAY policy put last.
void check_fifo(const Scenario& scenario, const SimulationResult& result) {
  const config::DynamicBatching& batching = *scenario.config.dynamic_batching;
  std::map<uint64_t, size_t> last;
  for (const SimulatedBatch& batch : result.batches) {
    for (size_t request : batch.requests) {
      if (expiry_of(batching, scenario.arrivals[request]) <= batch.start_ns) continue;
      const uint64_t level = level_of(batching, scenario.arrivals[request]);
      if (last.contains(level)) {
        EXPECT_LT(last[level], request) << "level " << level;
      }
      last[level] = request;
    }
  }
}

// An expired or cancelled request is answered at that very moment, if it has not been executed before.
void check_promptness(const Scenario& scenario, const SimulationResult& result) {
  const config::DynamicBatching& batching = *scenario.config.dynamic_batching;
  for (size_t i = 0; i < scenario.arrivals.size(); ++i) {
    const SimulatedAnswer& answer = result.answers[i];
    if (answer.reason == FailureReason::kCanceled) {
      EXPECT_EQ(answer.at_ns, scenario.arrivals[i].cancel_at_ns);
    }
    if (answer.status.message() == "Request timeout expired") {
      EXPECT_EQ(answer.at_ns, expiry_of(batching, scenario.arrivals[i]));
    }
  }
}

// A batch starts when something happens: an arrival, an instance that becomes free, a time limit, a cancellation.
// Without a delay that is all, so no instance idles while a request waits.
void check_no_bubble(const Scenario& scenario, const SimulationResult& result) {
  const config::DynamicBatching& batching = *scenario.config.dynamic_batching;
  const int64_t delay_ns = static_cast<int64_t>(batching.max_queue_delay_us) * kUs;
  std::set<int64_t> moments{scenario.options.stop_at_ns};
  for (const SimulatedArrival& made : scenario.arrivals)
    moments.insert({made.at_ns, made.cancel_at_ns, expiry_of(batching, made), made.at_ns + delay_ns});
  for (const SimulatedBatch& batch : result.batches) moments.insert(batch.end_ns);
  for (const SimulatedBatch& batch : result.batches) EXPECT_TRUE(moments.contains(batch.start_ns));
}

void check_order(const Scenario& scenario, const SimulationResult& result) {
  if (!scenario.config.dynamic_batching->preserve_ordering) return;
  std::vector<size_t> executed;
  for (size_t request : result.answer_order)
    if (result.answers[request].reason == FailureReason::kNone ||
        result.answers[request].reason == FailureReason::kBackend)
      executed.push_back(request);
  EXPECT_TRUE(std::is_sorted(executed.begin(), executed.end()));
}

TEST(BatcherProperties, HoldForRandomConfigurationsAndTraffic) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const Scenario scenario = random_scenario(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, scenario.text));
    const SimulationResult result = run(scenario.config, scenario.arrivals, scenario.options);
    check_answers(scenario, result);
    check_batches(scenario, result);
    check_fifo(scenario, result);
    check_promptness(scenario, result);
    check_no_bubble(scenario, result);
    check_order(scenario, result);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(BatcherProperties, SimulationIsReproducible) {
  const Scenario scenario = random_scenario(7);
  const SimulationResult first = run(scenario.config, scenario.arrivals, scenario.options);
  const SimulationResult second = run(scenario.config, scenario.arrivals, scenario.options);
  EXPECT_EQ(first.answer_order, second.answer_order);
  EXPECT_EQ(first.batch_rows(), second.batch_rows());
}

}  // namespace
}  // namespace flywheel::schedule
