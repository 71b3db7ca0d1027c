// SPDX-License-Identifier: Apache-2.0
// How batches form, as users of Triton's dynamic batcher know it (what its own suite calls L0_batcher): one test for
// each behaviour, in virtual time. Unless a test says otherwise: at most 8 rows, preferred sizes 2 and 6, a delay of 10
// s, one instance that takes no time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kDelay = 10 * kSecond;

config::ModelConfig usual() {
  return batching_config("preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: 10000000", 8);
}

config::ModelConfig preferred_4_and_6_without_delay() { return batching_config("preferred_batch_size: [ 4, 6 ]", 8); }

TEST(Batcher, StaticBatchesOfPreferredSizeAreSentAtOnce) {
  const auto result = run(usual(), {arrival(0, 2), arrival(kSecond, 6)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(2, 6));
  EXPECT_EQ(result.answers[0].at_ns, 0);
  EXPECT_EQ(result.answers[1].at_ns, kSecond);
  EXPECT_EQ(result.statistics.success.count, 2u);
  EXPECT_EQ(result.statistics.inference_count, 8u);
  EXPECT_EQ(result.statistics.execution_count, 2u);
  EXPECT_EQ(result.statistics.by_batch_size.at(2).compute_infer.count, 1u);
  EXPECT_EQ(result.statistics.by_batch_size.at(6).compute_infer.count, 1u);
}

TEST(Batcher, StaticBatchBelowAnyPreferredSizeWaitsForTheDelay) {
  const auto result = run(usual(), {arrival(0, 1)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(1));
  EXPECT_EQ(result.answers[0].at_ns, kDelay);
  EXPECT_EQ(result.batches[0].reason, DispatchReason::kDelayElapsed);
}

TEST(Batcher, StaticBatchBetweenPreferredSizesWaitsForTheDelay) {
  const auto result = run(usual(), {arrival(0, 3)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(3));
  EXPECT_EQ(result.answers[0].at_ns, kDelay);
}

TEST(Batcher, StaticBatchAboveTheLargestPreferredSizeIsSentAtOnce) {
  const auto result = run(usual(), {arrival(0, 7)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(7));
  EXPECT_EQ(result.answers[0].at_ns, 0);
}

TEST(Batcher, BatchAboveMaxBatchSizeIsRefused) {
  const auto result = run(usual(), {arrival(0, 9)});
  EXPECT_THAT(result.batches, SizeIs(0));
  EXPECT_EQ(result.answers[0].status.code(), Code::kInvalidArgument);
  EXPECT_EQ(result.answers[0].status.message(),
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'");
  EXPECT_EQ(result.answers[0].count, 1);
}

TEST(Batcher, DifferentShapesAreNotBatched) {
  const auto result = run(usual(), {arrival_of_shape(0, 1, 16), arrival_of_shape(kSecond, 1, 8)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 1));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond + kDelay);
  EXPECT_EQ(result.batches[0].reason, DispatchReason::kShapeChange);
}

// A model that flattens its inputs gives all requests one signature, whatever their shapes are.
TEST(Batcher, EqualSignaturesAreBatched) {
  const auto result = run(usual(), {arrival_of_shape(0, 1, 16), arrival_of_shape(kSecond, 1, 16)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(2));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
}

TEST(Batcher, SumBetweenPreferredSizesGoesWhenTheOldestHasWaited) {
  const auto result = run(usual(), {arrival(0, 1), arrival(2 * kSecond, 3)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(4));
  EXPECT_EQ(result.answers[0].at_ns, kDelay);
  EXPECT_EQ(result.answers[1].at_ns, kDelay);
}

TEST(Batcher, AnotherShapeSendsWhatWaits) {
  const auto result =
      run(usual(), {arrival_of_shape(0, 1, 16), arrival_of_shape(kMs, 3, 16), arrival_of_shape(kSecond, 1, 8)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 1));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond);
  EXPECT_EQ(result.answers[2].at_ns, kSecond + kDelay);
}

TEST(Batcher, AnotherShapeThatReachesAPreferredSizeIsSentToo) {
  const auto result = run(usual(), {arrival_of_shape(0, 1, 16), arrival_of_shape(kMs, 3, 16),
                                    arrival_of_shape(kSecond, 1, 8), arrival_of_shape(2 * kSecond, 5, 8)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 6));
  EXPECT_EQ(result.answers[2].at_ns, 2 * kSecond);
  EXPECT_EQ(result.answers[3].at_ns, 2 * kSecond);
}

TEST(Batcher, SecondRequestAboveTheLargestPreferredSizeSendsBothAtOnceApart) {
  const auto result = run(usual(), {arrival(0, 3), arrival(kSecond, 7)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(3, 7));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond);
}

TEST(Batcher, SumAboveTheLargestPreferredSizeSendsTheFirstAndKeepsTheSecond) {
  const auto result = run(usual(), {arrival(0, 3), arrival(kSecond, 4)});
  EXPECT_THAT(result.batch_rows(), ElementsAre(3, 4));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond + kDelay);
}

TEST(Batcher, SameRequestedOutputIsBatched) {
  std::vector<SimulatedArrival> arrivals{arrival(0), arrival(kSecond)};
  arrivals[0].requested_outputs = arrivals[1].requested_outputs = {"OUTPUT0"};
  const auto result = run(usual(), arrivals);
  EXPECT_THAT(result.batch_rows(), ElementsAre(2));
}

TEST(Batcher, DifferentRequestedOutputsAreBatched) {
  std::vector<SimulatedArrival> arrivals{arrival(0), arrival(kSecond)};
  arrivals[0].requested_outputs = {"OUTPUT0"};
  arrivals[1].requested_outputs = {"OUTPUT1"};
  const auto result = run(usual(), arrivals);
  EXPECT_THAT(result.batch_rows(), ElementsAre(2));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
}

TEST(Batcher, DifferentOrderOfOutputsIsBatched) {
  std::vector<SimulatedArrival> arrivals{arrival(0), arrival(kSecond)};
  arrivals[0].requested_outputs = {"OUTPUT0", "OUTPUT1"};
  arrivals[1].requested_outputs = {"OUTPUT1", "OUTPUT0"};
  const auto result = run(usual(), arrivals);
  EXPECT_THAT(result.batch_rows(), ElementsAre(2));
}

TEST(Batcher, HeldSumAboveTheLargestPreferredSizeSendsTheFirstAtOnce) {
  const auto result = run(usual(), {arrival(0, 3), arrival(kSecond, 4)}, held_until(2));
  EXPECT_THAT(result.batch_rows(), ElementsAre(3, 4));
  EXPECT_EQ(result.answers[0].at_ns, kSecond);
  EXPECT_EQ(result.answers[1].at_ns, kSecond + kDelay);
}

TEST(Batcher, HeldBeyondTheDelayUsesMaxBatchSize) {
  const auto result = run(usual(), {arrival(0, 3), arrival(kMs, 4), arrival(11 * kSecond, 1)}, held_until(3));
  EXPECT_THAT(result.batch_rows(), ElementsAre(8));
  EXPECT_EQ(result.answers[2].at_ns, 11 * kSecond);
}

TEST(Batcher, HeldPreferredSumWithAnotherShape) {
  const auto result = run(usual(),
                          {arrival_of_shape(0, 1, 16), arrival_of_shape(kMs, 3, 16), arrival_of_shape(2 * kMs, 1, 8),
                           arrival_of_shape(kSecond, 5, 8)},
                          held_until(4));
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 6));
  for (const auto& answer : result.answers) EXPECT_EQ(answer.at_ns, kSecond);
}

TEST(Batcher, LargestPreferredSizeIsUsed) {
  const auto result = run(usual(), burst(6), held_until(6));
  EXPECT_THAT(result.batch_rows(), ElementsAre(6));
  EXPECT_EQ(result.answers[0].at_ns, 0);
}

TEST(Batcher, BestPreferredSizeIsUsedAndTheRestWaits) {
  const auto result = run(usual(), burst(3), held_until(3));
  EXPECT_THAT(result.batch_rows(), ElementsAre(2, 1));
  EXPECT_EQ(result.answers[1].at_ns, 0);
  EXPECT_EQ(result.answers[2].at_ns, kDelay);
}

TEST(Batcher, WithoutDelayAlignedRequestsFormOnePreferredBatch) {
  EXPECT_THAT(run(preferred_4_and_6_without_delay(), burst(4), held_until(4)).batch_rows(), ElementsAre(4));
}

TEST(Batcher, WithoutDelayTheRestOfAPreferredBatchFollowsAtOnce) {
  const auto result = run(preferred_4_and_6_without_delay(), burst(5), held_until(5));
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 1));
  EXPECT_EQ(result.answers[4].at_ns, 0);
}

TEST(Batcher, WithoutDelayTheLargestPreferredSizeIsUsed) {
  EXPECT_THAT(run(preferred_4_and_6_without_delay(), burst(7), held_until(7)).batch_rows(), ElementsAre(6, 1));
}

TEST(Batcher, WithoutDelayAndBelowAnyPreferredSizeAllGoTogether) {
  const auto result = run(preferred_4_and_6_without_delay(), burst(3), held_until(3));
  EXPECT_THAT(result.batch_rows(), ElementsAre(3));
  EXPECT_EQ(result.batches[0].reason, DispatchReason::kNoDelay);
}

TEST(Batcher, DelayWithDefaultPreferredSizeMakesOneOrTwoExecutionsOfABurst) {
  std::vector<SimulatedArrival> arrivals;
  for (int i = 0; i < 12; ++i) arrivals.push_back(arrival(i * 100 * kUs));
  const auto result =
      run(batching_config("max_queue_delay_microseconds: 500000", 16), arrivals, executing_for(100 * kMs));
  EXPECT_THAT(result.batches.size(), AnyOf(1u, 2u));
  EXPECT_EQ(result.statistics.inference_count, 12u);
}

TEST(Batcher, WithoutDelayABurstIsExactlyTwoExecutions) {
  std::vector<SimulatedArrival> arrivals;
  for (int i = 0; i < 12; ++i) arrivals.push_back(arrival(i * 100 * kUs));
  const auto result = run(batching_config("", 16), arrivals, executing_for(100 * kMs));
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 11));
}

TEST(Batcher, PreserveOrderingAnswersInOrderOverInstances) {
  const auto config = batching_config("preferred_batch_size: 4 preserve_ordering: true", 4);
  SimulationOptions options = executing_for(0, 3);
  options.policy.hold_until_queued = 12;
  // The first batch takes longest, the last is done first.
  options.execution_ns = [](const SimulatedBatch& batch) {
    return (12 - static_cast<int64_t>(batch.requests[0])) * kMs;
  };
  const auto result = run(config, burst(12), options);
  EXPECT_THAT(result.batch_rows(), ElementsAre(4, 4, 4));
  EXPECT_THAT(result.answer_order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  for (const auto& answer : result.answers) EXPECT_EQ(answer.at_ns, 12 * kMs);
}

TEST(Batcher, WithoutPreserveOrderingTheFirstDoneIsAnsweredFirst) {
  SimulationOptions options = executing_for(0, 2);
  options.policy.hold_until_queued = 2;
  options.execution_ns = [](const SimulatedBatch& batch) {
    return (2 - static_cast<int64_t>(batch.requests[0])) * kMs;
  };
  const auto result = run(batching_config("preferred_batch_size: 1", 1), burst(2), options);
  EXPECT_THAT(result.answer_order, ElementsAre(1, 0));
}

TEST(Batcher, WithoutDynamicBatchingEachRequestIsABatch) {
  const auto result = run(model_config("max_batch_size: 1", 8), burst(3), executing_for(kMs));
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 1, 1));
  EXPECT_EQ(result.answers[2].at_ns, 3 * kMs);
}

TEST(Batcher, WithoutABatchDimensionDynamicBatchingHasNoEffect) {
  const auto config = model_config("max_batch_size: 0 dynamic_batching { max_queue_delay_microseconds: 1000 }", 8);
  const auto result = run(config, burst(3), executing_for(kMs));
  EXPECT_THAT(result.batch_rows(), ElementsAre(1, 1, 1));
  EXPECT_EQ(result.answers[0].at_ns, kMs);
}

}  // namespace
}  // namespace flywheel::schedule
