// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace flywheel::schedule {
namespace {

RequestPtr executed(int64_t batch_size, int64_t received_us) {
  auto request = std::make_shared<InferRequest>();
  request->batch_size = batch_size;
  Timeline& timeline = request->timeline;
  timeline.received_ns = received_us * 1000;
  timeline.queued_ns = timeline.received_ns + 1000;
  timeline.batch_formed_ns = 100'000;
  timeline.input_done_ns = 110'000;
  timeline.compute_done_ns = 210'000;
  timeline.output_done_ns = 215'000;
  return request;
}

TEST(Statistics, BatchIsCountedForItselfAndItsRequests) {
  ModelStatistics statistics(1);
  const std::vector<RequestPtr> requests{executed(2, 10), executed(3, 50)};
  const std::vector<Status> statuses{Status::ok(), Status::ok()};
  statistics.record_batch(0, requests, statuses, DispatchReason::kFull, 220'000);
  const StatisticsSnapshot s = statistics.snapshot();
  EXPECT_EQ(s.success.count, 2u);
  EXPECT_EQ(s.success.ns, 210'000u + 170'000u);
  EXPECT_EQ(s.queue.ns, 89'000u + 49'000u);
  EXPECT_EQ(s.compute_input.ns, 2 * 10'000u);
  EXPECT_EQ(s.compute_infer.ns, 2 * 100'000u);
  EXPECT_EQ(s.compute_output.ns, 2 * 5'000u);
  EXPECT_EQ(s.inference_count, 5u);
  EXPECT_EQ(s.execution_count, 1u);
  EXPECT_GT(s.last_inference_ms, 0);
  ASSERT_EQ(s.by_batch_size.size(), 1u);
  EXPECT_EQ(s.by_batch_size.at(5).compute_infer.count, 1u);
  EXPECT_EQ(s.by_batch_size.at(5).compute_infer.ns, 100'000u);
  EXPECT_EQ(s.dispatches[static_cast<size_t>(DispatchReason::kFull)], 1u);
  EXPECT_EQ(s.batch_size.counts[3], 1u) << "above 4, at most 8";
  EXPECT_EQ(s.batch_size.sum, 5);
  EXPECT_EQ(s.request_latency_us.count, 2u);
  EXPECT_EQ(s.request_latency_us.counts[1], 1u) << "170 us";
  EXPECT_EQ(s.request_latency_us.counts[2], 1u) << "210 us";
  EXPECT_EQ(s.compute_latency_us.sum, 115);
}

TEST(Statistics, FailuresAreCountedByReason) {
  ModelStatistics statistics(1);
  const std::vector<RequestPtr> requests{executed(2, 10), executed(3, 50)};
  const std::vector<Status> statuses{internal_error("x"), Status::ok()};
  statistics.record_batch(0, requests, statuses, DispatchReason::kNoDelay, 220'000);
  statistics.record_failure(FailureReason::kRejected, 1000, 3000);
  statistics.record_failure(FailureReason::kCanceled, 0, 3000);
  statistics.record_failure(FailureReason::kOther, 5000, 3000);
  const StatisticsSnapshot s = statistics.snapshot();
  EXPECT_EQ(s.success.count, 1u);
  EXPECT_EQ(s.inference_count, 3u);
  EXPECT_EQ(s.fail.count, 4u);
  EXPECT_EQ(s.fail.ns, 210'000u + 2000u) << "a time that is not known counts as none";
  for (FailureReason reason :
       {FailureReason::kBackend, FailureReason::kRejected, FailureReason::kCanceled, FailureReason::kOther})
    EXPECT_EQ(s.failures[static_cast<size_t>(reason)], 1u) << failure_reason_name(reason);
}

TEST(Statistics, BatchThatFailsAsAWholeHasNoComputeTimes) {
  ModelStatistics statistics(1);
  const std::vector<RequestPtr> requests{executed(2, 10)};
  const std::vector<Status> statuses{internal_error("x")};
  statistics.record_batch(0, requests, statuses, DispatchReason::kNoDelay, 220'000);
  const StatisticsSnapshot s = statistics.snapshot();
  EXPECT_EQ(s.execution_count, 1u);
  EXPECT_EQ(s.inference_count, 0u);
  EXPECT_TRUE(s.by_batch_size.empty());
  EXPECT_EQ(s.last_inference_ms, 0);
}

TEST(Statistics, HistogramBoundsAreInclusive) {
  ModelStatistics statistics(1);
  for (int64_t rows : {1, 2, 3, 1024, 1025}) {
    const std::vector<RequestPtr> requests{executed(rows, 10)};
    const std::vector<Status> statuses{Status::ok()};
    statistics.record_batch(0, requests, statuses, DispatchReason::kNoDelay, 220'000);
  }
  EXPECT_THAT(statistics.snapshot().batch_size.counts, ::testing::ElementsAre(1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1));
}

TEST(Statistics, ManyRecordersAndAReader) {
  ModelStatistics statistics(2);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<RequestPtr> requests{executed(1, 10)};
      const std::vector<Status> statuses{Status::ok()};
      for (int n = 0; n < 1000; ++n) {
        statistics.add_pending(1);
        statistics.record_batch(i, requests, statuses, DispatchReason::kNoDelay, 220'000);
        statistics.record_failure(FailureReason::kOther, 0, 0);
        statistics.add_pending(-1);
      }
    });
  }
  for (int n = 0; n < 100; ++n) {
    const StatisticsSnapshot s = statistics.snapshot();
    EXPECT_EQ(s.success.count, s.execution_count) << "a batch is seen whole or not at all";
  }
  for (std::thread& thread : threads) thread.join();
  const StatisticsSnapshot s = statistics.snapshot();
  EXPECT_EQ(s.success.count, 4000u);
  EXPECT_EQ(s.fail.count, 4000u);
  EXPECT_EQ(s.pending_requests, 0);
}

}  // namespace
}  // namespace flywheel::schedule
