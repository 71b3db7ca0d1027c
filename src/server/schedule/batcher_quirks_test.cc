// SPDX-License-Identifier: Apache-2.0
// Faults of known batchers that this one must not have: one test for each, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Elsewhere a busy batcher looks every half second, and not at all at what it has already handed over.
TEST(NotCopied, TimeoutsAreNoticedLateWhileAllInstancesAreBusy) {
  const auto config = batching_config("default_queue_policy { default_timeout_microseconds: 1234 }", 4);
  const auto result = run(config, {arrival(0), arrival(kUs), arrival(2 * kUs)}, executing_for(kSecond));
  EXPECT_EQ(result.answers[1].at_ns, kUs + 1234 * kUs);
  EXPECT_EQ(result.answers[2].at_ns, 2 * kUs + 1234 * kUs);
  EXPECT_EQ(result.answers[1].status.message(), "Request timeout expired");
}

TEST(NotCopied, CancellationIsNotNoticedWhileAllInstancesAreBusy) {
  std::vector<SimulatedArrival> arrivals{arrival(0), arrival(kUs)};
  arrivals[1].cancel_at_ns = 77 * kUs;
  const auto result = run(batching_config("", 4), arrivals, executing_for(kSecond));
  EXPECT_EQ(result.answers[1].at_ns, 77 * kUs);
}

TEST(NotCopied, RequestsThatWaitForAnInstanceAreNoLongerTimedOut) {
  // The second request could have been handed over ahead of time; here it waits in the queue to the end.
  const auto config = batching_config("default_queue_policy { default_timeout_microseconds: 5000 }", 1);
  const auto result = run(config, {arrival(0), arrival(kUs)}, executing_for(10 * kMs));
  EXPECT_EQ(result.answers[1].at_ns, kUs + 5 * kMs);
  EXPECT_EQ(result.batches.size(), 1u);
}

TEST(NotCopied, RefusedAndExpiredRequestsStayInTheCounts) {
  const auto config = batching_config(
      "preferred_batch_size: 4 max_queue_delay_microseconds: 100000 default_queue_policy { max_queue_size: 2 "
      "default_timeout_microseconds: 10000 }",
      4);
  SimulationOptions options;
  options.sample_at_ns = {kMs, 50 * kMs};
  // Two wait, two are refused, and later the two expire: nothing of them may count towards the batch of the last ones.
  std::vector<SimulatedArrival> arrivals = burst(4);
  arrivals.push_back(arrival(20 * kMs));
  arrivals.push_back(arrival(25 * kMs));
  const auto result = run(config, arrivals, options);
  EXPECT_EQ(result.samples[0].pending_requests, 2);
  EXPECT_EQ(result.samples[1].pending_requests, 0);
  EXPECT_EQ(result.answers[4].at_ns, 30 * kMs) << "it expired; no batch was formed early";
  EXPECT_TRUE(result.batches.empty());
  EXPECT_EQ(result.statistics.pending_requests, 0);
  EXPECT_EQ(result.statistics.failures[static_cast<size_t>(FailureReason::kRejected)], 6u);
}

TEST(NotCopied, BatchesOfOneMoreThanTheLargestPreferredSize) {
  const auto config = batching_config("preferred_batch_size: 4 max_queue_delay_microseconds: 10000", 8);
  std::vector<SimulatedArrival> arrivals;
  for (int i = 0; i < 100; ++i) arrivals.push_back(arrival(i * kMs));
  const auto result = run(config, arrivals, executing_for(4 * kMs));
  EXPECT_THAT(result.batch_rows(), Each(4));
}

TEST(NotCopied, PrioritiesTimeoutsAndQueueSizesLeaveAnInstanceIdleBetweenBatches) {
  const std::string policies[] = {
      "", "priority_levels: 3 default_priority_level: 2", "default_queue_policy { max_queue_size: 1000 }",
      "default_queue_policy { default_timeout_microseconds: 100000000 allow_timeout_override: true }"};
  for (const std::string& policy : policies) {
    const auto result = run(batching_config(policy, 4), burst(64), executing_for(3 * kMs));
    ASSERT_EQ(result.batches.size(), 17u) << policy;
    for (size_t i = 1; i < result.batches.size(); ++i)
      EXPECT_EQ(result.batches[i].start_ns, result.batches[i - 1].end_ns) << policy;
  }
}

TEST(NotCopied, LowerPrioritiesStarve) {
  const auto config = batching_config("priority_levels: 2 default_priority_level: 1", 4);
  std::vector<SimulatedArrival> arrivals{prioritized(kMs, 1, 2)};
  // Enough of the first level to fill every batch for a minute.
  for (int i = 0; i < 60'000; i += 5)
    for (int j = 0; j < 8; ++j) arrivals.push_back(prioritized(i * kMs, 1, 1));
  const auto result = run(config, arrivals, executing_for(10 * kMs));
  EXPECT_GE(result.answers[0].at_ns, 10 * kSecond) << "strict priority for as long as nothing starves";
  EXPECT_LE(result.answers[0].at_ns, 10 * kSecond + 100 * kMs) << "within eight batches after that";
}

TEST(NotCopied, LowerPrioritiesStarveOnlyIfAskedFor) {
  const auto config = model_config(
      "max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 1 } "
      "parameters { key: \"priority_aging_microseconds\" value { string_value: \"0\" } }",
      4);
  std::vector<SimulatedArrival> arrivals{prioritized(kMs, 1, 2)};
  for (int j = 0; j < 8; ++j) arrivals.push_back(prioritized(0, 1, 1));
  for (int i = 5; i < 20'000; i += 5)
    for (int j = 0; j < 4; ++j) arrivals.push_back(prioritized(i * kMs, 1, 1));
  const auto result = run(config, arrivals, executing_for(5 * kMs));
  EXPECT_EQ(result.batches.back().requests.back(), 0u) << "it goes last";
}

TEST(NotCopied, QueueSizeLeavesOutWhatIsHandedOverAhead) {
  // One executes and eight wait, whatever could have been prepared for the instance.
  const auto config = batching_config("default_queue_policy { max_queue_size: 8 }", 4);
  std::vector<SimulatedArrival> arrivals{arrival(0)};
  for (int i = 0; i < 20; ++i) arrivals.push_back(arrival(kMs));
  const auto result = run(config, arrivals, executing_for(kSecond));
  EXPECT_EQ(result.statistics.success.count, 9u);
  EXPECT_EQ(result.statistics.fail.count, 12u);
}

TEST(Growth, RequestsJoinTheWaitingBatchUntilAnInstanceTakesIt) {
  std::vector<SimulatedArrival> arrivals;
  for (int i = 0; i < 7; ++i) arrivals.push_back(arrival(i * kMs));
  const auto result = run(batching_config("", 8), arrivals, executing_for(7 * kMs));
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 6));
}

TEST(Growth, NoMoreThanMaxBatchSizeJoins) {
  const auto result = run(batching_config("", 8), burst(20), executing_for(kMs));
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 8, 8, 3));
}

TEST(Draining, NothingWaitsForItsDelay) {
  SimulationOptions options;
  options.stop_at_ns = kSecond;
  const auto result = run(batching_config("max_queue_delay_microseconds: 10000000", 4), burst(3), options);
  EXPECT_THAT(result.batch_rows(), ElementsAre(3));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.batches[0].reason, DispatchReason::kDraining);
}

TEST(Failure, FailsOneBatchAndNoOther) {
  SimulationOptions options = executing_for(kMs);
  options.fails = [](const SimulatedBatch& batch) { return batch.requests[0] == 1; };
  const auto result = run(batching_config("", 2), burst(5), options);
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 2, 2));
  EXPECT_TRUE(result.answers[0].status.is_ok());
  EXPECT_EQ(result.answers[1].reason, FailureReason::kBackend);
  EXPECT_EQ(result.answers[2].reason, FailureReason::kBackend);
  EXPECT_TRUE(result.answers[3].status.is_ok());
  EXPECT_EQ(result.statistics.failures[static_cast<size_t>(FailureReason::kBackend)], 2u);
  EXPECT_EQ(result.statistics.success.count, 3u);
}

TEST(Policy, UnknownNameIsRefusedWithTheList) {
  const auto config = model_config("parameters { key: \"batch_policy\" value { string_value: \"best\" } }", 4);
  auto result = make_policy(config);
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().message(),
            "parameter 'batch_policy' of model 'm' is 'best', but the policies are: direct, triton");
}

TEST(Policy, AgingMustBeANumber) {
  for (const char* text : {"-1", "soon", "1s", "99999999999999999999"}) {
    const auto config = model_config(
        std::string("parameters { key: \"priority_aging_microseconds\" value { string_value: \"") + text + "\" } }", 4);
    EXPECT_FALSE(make_policy(config).is_ok()) << text;
  }
}

// With batch_past_other_shapes a request of another shape is passed over, and leads the batch after.
TEST(BatchPastOtherShapes, RequestsBehindOneOfAnotherShapeJoin) {
  const auto config = model_config(
      "dynamic_batching { } parameters { key: \"batch_past_other_shapes\" value { string_value: \"true\" } }", 4);
  SimulationOptions options = executing_for(kMs);
  options.policy.hold_until_queued = 6;
  const auto result = run(config,
                          {arrival_of_shape(0, 1, 16), arrival_of_shape(0, 1, 8), arrival_of_shape(0, 1, 16),
                           arrival_of_shape(0, 1, 8), arrival_of_shape(0, 1, 16), arrival_of_shape(0, 1, 24)},
                          options);
  EXPECT_THAT(result.batch_rows(), ElementsAre(3, 2, 1));
  EXPECT_THAT(result.batches[0].requests, ElementsAre(0, 2, 4));
  EXPECT_THAT(result.batches[1].requests, ElementsAre(1, 3));
}

TEST(BatchPastOtherShapes, NothingStarvesUnderASteadyStream) {
  const auto config = model_config(
      "dynamic_batching { } parameters { key: \"batch_past_other_shapes\" value { string_value: \"true\" } }", 2);
  std::vector<SimulatedArrival> arrivals{arrival_of_shape(0, 1, 16), arrival_of_shape(0, 1, 8)};
  for (int i = 0; i < 200; ++i) arrivals.push_back(arrival_of_shape(i * kMs / 4, 1, 16));
  const auto result = run(config, arrivals, executing_for(kMs));
  EXPECT_LE(result.answers[1].at_ns, 3 * kMs);
}

}  // namespace
}  // namespace flywheel::schedule
