// SPDX-License-Identifier: Apache-2.0
// How requests wait: queue sizes, time limits, priorities, cancellation and what is counted meanwhile, as users of
// Triton know it (L0_model_queue, L0_request_cancellation and L0_metrics in its own suite): one test for each
// behaviour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::ElementsAre;

// At most 32 rows, preferred sizes 4 and 8, a delay of 10 s.
config::ModelConfig queue_config(const std::string& rest) {
  return batching_config("preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 10000000 " + rest, 32);
}

size_t count_refused(const SimulationResult& result, const std::string& message) {
  size_t count = 0;
  for (const SimulatedAnswer& answer : result.answers)
    count += answer.status.code() == Code::kUnavailable && answer.status.message() == message ? 1 : 0;
  return count;
}

TEST(ModelQueue, MaxQueueSizeRefusesWhatIsAboveIt) {
  const auto config = batching_config("preferred_batch_size: [ 4, 8 ] default_queue_policy { max_queue_size: 8 }", 32);
  std::vector<SimulatedArrival> arrivals{arrival(0, 8)};
  for (int i = 0; i < 10; ++i) arrivals.push_back(arrival(500 * kMs));
  const auto result = run(config, arrivals, executing_for(5 * kSecond));
  EXPECT_EQ(count_refused(result, "[request id: <id_unknown>] Exceeds maximum queue size"), 2u);
  for (size_t i : {9u, 10u}) EXPECT_EQ(result.answers[i].at_ns, 500 * kMs) << "refused at once";
  EXPECT_THAT(result.batch_rows(), ElementsAre(8, 8));
  EXPECT_EQ(result.statistics.failures[static_cast<size_t>(FailureReason::kRejected)], 2u);
}

TEST(ModelQueue, DelayPolicyServesExpiredRequestsLast) {
  const auto config =
      queue_config("default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 100000 }");
  const auto result = run(config, {arrival(0, 1), arrival(200 * kMs, 2), arrival(200 * kMs, 2)});
  EXPECT_EQ(result.answers[0].at_ns, 10 * kSecond);
  EXPECT_EQ(result.answers[1].at_ns, 200 * kMs);
  EXPECT_EQ(result.answers[2].at_ns, 200 * kMs);
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 1));
}

TEST(ModelQueue, RejectPolicyRefusesExpiredRequests) {
  const auto config = queue_config("default_queue_policy { default_timeout_microseconds: 100000 }");
  const auto result = run(config, {arrival(0, 1), arrival(200 * kMs, 2), arrival(200 * kMs, 2)});
  EXPECT_EQ(count_refused(result, "Request timeout expired"), 1u);
  EXPECT_EQ(result.answers[0].at_ns, 100 * kMs);
  EXPECT_EQ(result.answers[0].reason, FailureReason::kRejected);
  EXPECT_EQ(result.statistics.failures[static_cast<size_t>(FailureReason::kRejected)], 1u);
  EXPECT_EQ(result.answers[1].at_ns, 200 * kMs);
  EXPECT_THAT(result.batch_rows(), ElementsAre(4));
}

TEST(ModelQueue, RequestMayShortenItsTimeout) {
  const auto config =
      queue_config("default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 1000000 }");
  const auto result = run(config, {prioritized(0, 1, 0, 100'000), arrival(200 * kMs, 2), arrival(200 * kMs, 2)});
  EXPECT_EQ(count_refused(result, "Request timeout expired"), 1u);
  EXPECT_EQ(result.answers[0].at_ns, 100 * kMs);
  EXPECT_EQ(result.answers[1].at_ns, 200 * kMs);
}

TEST(ModelQueue, RequestMayNotLengthenItsTimeout) {
  const auto config =
      queue_config("default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 1000000 }");
  const auto result = run(config, {prioritized(0, 1, 0, 10'000'000), arrival(200 * kMs, 2), arrival(200 * kMs, 2)});
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond) << "without the first, the others make a preferred batch";
}

TEST(ModelQueue, WithoutItsOwnTimeoutARequestHasTheDefault) {
  const auto config =
      queue_config("default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 1000000 }");
  const auto result = run(config, {arrival(0, 1), arrival(200 * kMs, 2), arrival(200 * kMs, 2)});
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[0].status.message(), "Request timeout expired");
  EXPECT_EQ(result.answers[1].at_ns, kSecond);
}

TEST(ModelQueue, OverrideThatIsNotAllowedIsIgnored) {
  const auto config = queue_config("default_queue_policy { default_timeout_microseconds: 1000000 }");
  EXPECT_EQ(run(config, {prioritized(0, 1, 0, 100'000)}).answers[0].at_ns, kSecond);
}

TEST(ModelQueue, OverrideWithoutADefaultTimeoutIsIgnored) {
  const auto config = queue_config("default_queue_policy { allow_timeout_override: true }");
  const auto result = run(config, {prioritized(0, 1, 0, 100'000)});
  EXPECT_EQ(result.answers[0].at_ns, 10 * kSecond);
  EXPECT_TRUE(result.answers[0].status.is_ok());
}

TEST(ModelQueue, HigherPriorityGoesFirst) {
  const auto config = queue_config("priority_levels: 2 default_priority_level: 2");
  const auto result = run(config, {arrival(0, 2), arrival(100 * kMs, 1), prioritized(300 * kMs, 2, 1)});
  EXPECT_THAT(result.batches[0].requests, ElementsAre(2, 0));
  EXPECT_EQ(result.answers[0].at_ns, 300 * kMs);
  EXPECT_EQ(result.answers[2].at_ns, 300 * kMs);
  EXPECT_EQ(result.answers[1].at_ns, 100 * kMs + 10 * kSecond);
}

TEST(ModelQueue, PriorityLevelsReachTheLargestInteger) {
  const auto config = queue_config("priority_levels: 18446744073709551615 default_priority_level: 4294967296");
  const auto result = run(config, {arrival(0, 2), prioritized(100 * kMs, 1, 4294967296), prioritized(300 * kMs, 2, 1)});
  EXPECT_THAT(result.batches[0].requests, ElementsAre(2, 0));
  EXPECT_EQ(result.answers[1].at_ns, 100 * kMs + 10 * kSecond);
}

TEST(ModelQueue, PriorityBeyondTheLevelsIsTheDefault) {
  const auto config = batching_config("preferred_batch_size: 3 priority_levels: 2 default_priority_level: 1", 3);
  const auto result = run(config, {prioritized(0, 1, 2), prioritized(0, 1, 3), prioritized(0, 1, 0)}, held_until(3));
  EXPECT_THAT(result.batches[0].requests, ElementsAre(1, 2, 0));
}

TEST(ModelQueue, PoliciesHoldForTheirLevel) {
  const auto config = batching_config(
      "preferred_batch_size: [ 4, 8, 32 ] max_queue_delay_microseconds: 10000000 priority_levels: 2 "
      "default_priority_level: 2 default_queue_policy { timeout_action: DELAY allow_timeout_override: true "
      "default_timeout_microseconds: 11000000 } priority_queue_policy { key: 2 value { timeout_action: REJECT "
      "allow_timeout_override: true default_timeout_microseconds: 11000000 } }",
      32);
  const auto result = run(
      config, {prioritized(0, 2, 1), prioritized(200 * kMs, 1, 1, 1'000'000), prioritized(400 * kMs, 2, 1),
               prioritized(600 * kMs, 2, 2, 2'000'000), prioritized(800 * kMs, 3, 2), prioritized(1000 * kMs, 6, 2)});
  ASSERT_EQ(result.batches.size(), 3u);
  EXPECT_THAT(result.batches[0].requests, ElementsAre(0, 2));
  EXPECT_EQ(result.batches[0].start_ns, 1200 * kMs) << "when the second request is put last";
  EXPECT_THAT(result.batches[1].requests, ElementsAre(1, 4));
  EXPECT_EQ(result.batches[1].start_ns, 2600 * kMs) << "when the fourth request is refused";
  EXPECT_EQ(result.answers[3].status.message(), "Request timeout expired");
  EXPECT_THAT(result.batches[2].requests, ElementsAre(5));
  EXPECT_EQ(result.batches[2].start_ns, 11 * kSecond);
}

TEST(ModelQueue, MaxQueueSizeCountsEachLevelByItself) {
  const auto config = batching_config(
      "priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 1 } "
      "priority_queue_policy { key: 2 value { max_queue_size: 2 } }",
      4);
  std::vector<SimulatedArrival> arrivals{arrival(0)};
  for (uint64_t level : {1u, 1u, 2u, 2u, 2u}) arrivals.push_back(prioritized(kMs, 1, level));
  const auto result = run(config, arrivals, executing_for(kSecond));
  EXPECT_TRUE(result.answers[1].status.is_ok());
  EXPECT_FALSE(result.answers[2].status.is_ok());
  EXPECT_TRUE(result.answers[3].status.is_ok());
  EXPECT_TRUE(result.answers[4].status.is_ok());
  EXPECT_FALSE(result.answers[5].status.is_ok());
}

TEST(ModelQueue, PromptRejectionWhileTheInstanceIsBusy) {
  const auto config = batching_config("default_queue_policy { default_timeout_microseconds: 3000000 }", 1);
  const auto result = run(config, {arrival(0), arrival(2 * kSecond)}, executing_for(6 * kSecond));
  EXPECT_EQ(result.answers[1].at_ns, 5 * kSecond);
  EXPECT_EQ(result.answers[1].status.message(), "Request timeout expired");
  EXPECT_EQ(result.answers[0].at_ns, 6 * kSecond);
}

TEST(RequestCancellation, QueuedRequestIsAnsweredAsCancelled) {
  std::vector<SimulatedArrival> arrivals{arrival(0), arrival(kMs), arrival(2 * kSecond)};
  arrivals[2].cancel_at_ns = 4 * kSecond;
  const auto result = run(batching_config("", 1), arrivals, executing_for(10 * kSecond));
  EXPECT_EQ(result.answers[2].at_ns, 4 * kSecond);
  EXPECT_EQ(result.answers[2].status.code(), Code::kCancelled);
  EXPECT_EQ(result.answers[2].reason, FailureReason::kCanceled);
  EXPECT_EQ(result.statistics.failures[static_cast<size_t>(FailureReason::kCanceled)], 1u);
  EXPECT_EQ(result.batches.size(), 2u);
}

TEST(RequestCancellation, ExecutingRequestIsAnsweredAsUsual) {
  std::vector<SimulatedArrival> arrivals{arrival(0)};
  arrivals[0].cancel_at_ns = kMs;
  const auto result = run(batching_config("", 1), arrivals, executing_for(kSecond));
  EXPECT_TRUE(result.answers[0].status.is_ok());
  EXPECT_EQ(result.answers[0].count, 1);
}

TEST(RequestCancellation, RequestCancelledBeforeItArrivesIsNotExecuted) {
  std::vector<SimulatedArrival> arrivals{arrival(kMs)};
  arrivals[0].cancel_at_ns = 0;
  const auto result = run(batching_config("", 1), arrivals);
  EXPECT_EQ(result.answers[0].status.code(), Code::kCancelled);
  EXPECT_TRUE(result.batches.empty());
}

SimulationOptions sampled_every_2_seconds() {
  SimulationOptions options = executing_for(2 * kSecond);
  options.sample_at_ns = {1 * kSecond, 3 * kSecond, 5 * kSecond, 7 * kSecond};
  return options;
}

TEST(PendingRequests, AreThoseThatDoNotExecuteYet) {
  const auto config = batching_config("max_queue_delay_microseconds: 100000", 4);
  const auto result = run(config, burst(10), sampled_every_2_seconds());
  EXPECT_EQ(result.samples[0].pending_requests, 6);
  EXPECT_EQ(result.samples[1].pending_requests, 2);
  EXPECT_EQ(result.samples[2].pending_requests, 0);
  EXPECT_EQ(result.samples[2].executing_batches, 1);
  EXPECT_EQ(result.samples[3].executing_batches, 0);
  EXPECT_EQ(result.statistics.inference_count, 10u);
  EXPECT_EQ(result.statistics.execution_count, 3u);
}

TEST(PendingRequests, AreAtMostMaxQueueSize) {
  const auto config =
      batching_config("max_queue_delay_microseconds: 100000 default_queue_policy { max_queue_size: 4 }", 4);
  const auto result = run(config, burst(10), sampled_every_2_seconds());
  EXPECT_EQ(result.samples[0].pending_requests, 4);
  EXPECT_EQ(result.samples[1].pending_requests, 0);
  EXPECT_EQ(result.statistics.inference_count, 8u);
  EXPECT_EQ(result.statistics.execution_count, 2u);
  EXPECT_EQ(result.statistics.fail.count, 2u);
}

TEST(PendingRequests, WithoutBatchingGoDownOneByOne) {
  SimulationOptions options = executing_for(2 * kSecond);
  for (int i = 0; i < 10; ++i) options.sample_at_ns.push_back((2 * i + 1) * kSecond);
  const auto result = run(model_config("max_batch_size: 1", 4), burst(10), options);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(result.samples[static_cast<size_t>(i)].pending_requests, 9 - i);
}

}  // namespace
}  // namespace flywheel::schedule
