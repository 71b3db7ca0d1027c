// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RequestPtr request_of(std::string id, uint64_t priority = 0, uint64_t timeout_us = 0) {
  auto request = std::make_shared<InferRequest>();
  request->id = std::move(id);
  request->priority = priority;
  request->timeout_us = timeout_us;
  return request;
}

std::vector<std::string> ids(const RequestQueue& queue) {
  std::vector<std::string> all;
  queue.visit([&](InferRequest& request) {
    all.push_back(request.id);
    return true;
  });
  return all;
}

TEST(RequestQueue, ServesByLevelThenArrivalThenDelayed) {
  RequestQueue queue(batching_config("priority_levels: 3 default_priority_level: 2", 4));
  std::vector<RequestPtr> requests{request_of("a", 3), request_of("b"),    request_of("c", 1),
                                   request_of("d", 2), request_of("e", 1), request_of("f", 9)};
  for (const RequestPtr& request : requests) ASSERT_TRUE(queue.push(request, 5).is_ok());
  EXPECT_THAT(ids(queue), ElementsAre("c", "e", "b", "d", "f", "a"));
  queue.delay(*requests[1]);
  queue.delay(*requests[2]);
  EXPECT_THAT(ids(queue), ElementsAre("e", "c", "d", "f", "b", "a"));
  queue.delay(*requests[3]);
  EXPECT_THAT(ids(queue), ElementsAre("e", "c", "f", "b", "d", "a"))
      << "delayed requests keep the order of their delay";
  EXPECT_EQ(queue.remove(*requests[1]), requests[1]);
  EXPECT_EQ(queue.remove(*requests[5]), requests[5]);
  EXPECT_THAT(ids(queue), ElementsAre("e", "c", "d", "a"));
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_EQ(queue.pushed(), 6u);
  EXPECT_EQ(queue.oldest_below_first_level(), requests[0].get());
}

TEST(RequestQueue, KeepsTimeLimitsInOrder) {
  RequestQueue queue(
      batching_config("default_queue_policy { default_timeout_microseconds: 10 allow_timeout_override: true }", 4));
  std::vector<RequestPtr> requests{request_of("a"), request_of("b", 0, 3), request_of("c", 0, 30),
                                   request_of("d", 0, 3)};
  EXPECT_EQ(queue.next_expiry_ns(), kNever);
  for (const RequestPtr& request : requests) ASSERT_TRUE(queue.push(request, 1000).is_ok());
  EXPECT_EQ(queue.next_expiry_ns(), 4000);
  EXPECT_THAT(queue.expired(3999), IsEmpty());
  EXPECT_THAT(queue.expired(4000), ElementsAre(requests[1].get(), requests[3].get()));
  EXPECT_EQ(queue.expired(11000).size(), 4u);
  queue.remove(*requests[1]);
  queue.delay(*requests[3]);
  EXPECT_EQ(queue.next_expiry_ns(), 11000) << "what was delayed does not expire again";
}

TEST(RequestQueue, TimeoutsBeyondTheClockNeverEnd) {
  RequestQueue queue(batching_config("default_queue_policy { default_timeout_microseconds: 18446744073709551615 }", 4));
  ASSERT_TRUE(queue.push(request_of("a"), kNever - 5000).is_ok());
  EXPECT_EQ(queue.next_expiry_ns(), kNever);
  RequestQueue close(batching_config("default_queue_policy { default_timeout_microseconds: 4 }", 4));
  ASSERT_TRUE(close.push(request_of("a"), kNever - 5000).is_ok());
  EXPECT_EQ(close.next_expiry_ns(), kNever - 1000);
}

TEST(RequestQueue, LimitHoldsForALevel) {
  RequestQueue queue(
      batching_config("priority_levels: 2 default_priority_level: 1 default_queue_policy { max_queue_size: 1 }", 4));
  RequestPtr first = request_of("a", 1);
  ASSERT_TRUE(queue.push(first, 0).is_ok());
  const Status refused = queue.push(request_of("b", 1), 0);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(refused.message(), "Exceeds maximum queue size");
  EXPECT_TRUE(queue.push(request_of("c", 2), 0).is_ok());
  EXPECT_TRUE(queue.push(request_of("d", 1), 0, 1).is_ok()) << "one of the level is about to leave";
  queue.remove(*first);
  EXPECT_TRUE(queue.is_full(1));
}

TEST(RequestQueue, CancellationIsNotedOnceAndForQueuedRequestsOnly) {
  RequestQueue queue(batching_config("", 4));
  std::vector<RequestPtr> requests{request_of("a"), request_of("b"), request_of("c")};
  queue.mark_cancelled(*requests[0]);
  EXPECT_FALSE(queue.any_cancelled());
  for (const RequestPtr& request : requests) ASSERT_TRUE(queue.push(request, 0).is_ok());
  queue.mark_cancelled(*requests[2]);
  queue.mark_cancelled(*requests[0]);
  queue.mark_cancelled(*requests[2]);
  EXPECT_THAT(queue.cancelled(), ElementsAre(requests[0].get(), requests[2].get()));
  queue.remove(*requests[2]);
  EXPECT_THAT(queue.cancelled(), ElementsAre(requests[0].get()));
}

TEST(ShapeSignature, TellsShapesApartButNotBatchSizes) {
  auto inputs = [](std::vector<std::vector<int64_t>> shapes) {
    std::vector<InputView> views;
    for (auto& shape : shapes) {
      views.emplace_back();
      views.back().data_type = config::DataType::kFp32;
      views.back().shape = shape;
    }
    return views;
  };
  EXPECT_EQ(shape_signature(inputs({{2, 8}, {2, 3}}), true), shape_signature(inputs({{5, 8}, {5, 3}}), true));
  EXPECT_NE(shape_signature(inputs({{2, 8}, {2, 3}}), true), shape_signature(inputs({{2, 8}, {2, 4}}), true));
  EXPECT_NE(shape_signature(inputs({{2, 8}, {2}}), true), shape_signature(inputs({{2}, {2, 8}}), true));
  EXPECT_NE(shape_signature(inputs({{2, 8}}), false), shape_signature(inputs({{3, 8}}), false));
  EXPECT_EQ(shape_signature(inputs({{}}), true), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace flywheel::schedule
