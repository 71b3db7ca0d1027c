// SPDX-License-Identifier: Apache-2.0
// The production loop with real threads. Nothing here is timed: tests wait for what must happen, and would hang if it
// did not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/schedule/scheduler_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Scheduler, AnswersWithOutputsAndTimes) {
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 4), [](Batch& batch) {
    batch.input_done_ns = monotonic_now_ns();
    batch.compute_done_ns = monotonic_now_ns();
    for (BatchItem& item : batch.items) {
      OutputTensor output;
      output.name = "y of " + item.request->id;
      item.outputs.push_back(output);
    }
    return Status::ok();
  });
  scheduler->enqueue(inbox.request("a"));
  const InferResponse response = inbox.answer("a");
  ASSERT_TRUE(response.status.is_ok());
  ASSERT_EQ(response.outputs.size(), 1u);
  EXPECT_EQ(response.outputs[0].name, "y of a");
  const Timeline timeline = inbox.timeline("a");
  EXPECT_GT(timeline.received_ns, 0);
  EXPECT_GE(timeline.queued_ns, timeline.received_ns);
  EXPECT_GE(timeline.batch_formed_ns, timeline.queued_ns);
  EXPECT_GE(timeline.input_done_ns, timeline.batch_formed_ns);
  EXPECT_GE(timeline.compute_done_ns, timeline.input_done_ns);
  EXPECT_GE(timeline.output_done_ns, timeline.compute_done_ns);
  EXPECT_EQ(timeline.sent_ns, 0) << "the protocol's to stamp";
  scheduler->stop(kDefaultGraceNs);
  const StatisticsSnapshot statistics = scheduler->statistics()->snapshot();
  EXPECT_EQ(statistics.success.count, 1u);
  EXPECT_EQ(statistics.queue.ns, static_cast<uint64_t>(timeline.queue_ns()));
}

TEST(Scheduler, WhatArrivesMeanwhileIsBatched) {
  Device device(false);
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 8), on(device));
  scheduler->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  for (const char* id : {"b", "c", "d"}) scheduler->enqueue(inbox.request(id));
  EXPECT_EQ(scheduler->queued_requests(), 3u);
  EXPECT_EQ(scheduler->statistics()->snapshot().pending_requests, 3);
  device.open();
  inbox.wait_for(4);
  EXPECT_THAT(device.batches(), ElementsAre(ElementsAre("a"), ElementsAre("b", "c", "d")));
}

TEST(Scheduler, PreferredBatchGoesWithoutWaitingForTheDelay) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(
      batching_config("preferred_batch_size: 3 max_queue_delay_microseconds: 3600000000", 8), on(device));
  for (const char* id : {"a", "b", "c"}) scheduler->enqueue(inbox.request(id));
  inbox.wait_for(3);
  EXPECT_THAT(device.batches(), ElementsAre(ElementsAre("a", "b", "c")));
}

TEST(Scheduler, DelayEndsByItself) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("max_queue_delay_microseconds: 2000", 8), on(device));
  scheduler->enqueue(inbox.request("a"));
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  EXPECT_GE(inbox.timeline("a").queue_ns(), 2'000'000);
}

TEST(Scheduler, TooLargeABatchIsRefusedBeforeEnqueueReturns) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 4), on(device));
  scheduler->enqueue(inbox.request("a", 5));
  EXPECT_THAT(inbox.order(), ElementsAre("a"));
  EXPECT_EQ(inbox.answer("a").status.message(), "[request id: a] inference request batch-size must be <= 4 for 'm'");
  scheduler->enqueue(inbox.request("b", 0));
  EXPECT_EQ(inbox.answer("b").status.code(), Code::kInvalidArgument);
}

TEST(Scheduler, FullQueueRefusesButCountsOnlyWhatWillStay) {
  Device device(false);
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("preferred_batch_size: 4 max_queue_delay_microseconds: 3600000000 "
                                                  "default_queue_policy { max_queue_size: 4 }",
                                                  4),
                                  on(device));
  // Four go to the idle instance, whether or not it is awake yet when the next ones come; four wait.
  for (int i = 0; i < 8; ++i) scheduler->enqueue(inbox.request(fmt::format("{}", i)));
  EXPECT_TRUE(inbox.order().empty());
  scheduler->enqueue(inbox.request("one too many"));
  EXPECT_THAT(inbox.order(), ElementsAre("one too many"));
  EXPECT_THAT(inbox.answer("one too many").status.message(), HasSubstr("Exceeds maximum queue size"));
  device.open();
  inbox.wait_for(9);
}

TEST(Scheduler, ExpiresWhileAllInstancesAreBusy) {
  Device device(false);
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("default_queue_policy { allow_timeout_override: true "
                                                  "default_timeout_microseconds: 3600000000 }",
                                                  1),
                                  on(device));
  scheduler->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  RequestPtr brief = inbox.request("b");
  brief->timeout_us = 1000;  // of b alone: on a busy machine a, too, would wait longer than that
  scheduler->enqueue(brief);
  EXPECT_EQ(inbox.answer("b").status.message(), "Request timeout expired");
  EXPECT_EQ(inbox.answer("b").reason, FailureReason::kRejected);
  device.open();
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
}

TEST(Scheduler, ExpiryLetsTheNextBatchForm) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(
      batching_config("preferred_batch_size: 2 max_queue_delay_microseconds: 3600000000 "
                      "default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 3600000000 }",
                      4),
      on(device));
  RequestPtr brief = inbox.request("brief");
  brief->timeout_us = 1000;
  brief->signature = {1};
  scheduler->enqueue(brief);
  EXPECT_EQ(inbox.answer("brief").status.message(), "Request timeout expired");
  scheduler->enqueue(inbox.request("a"));
  scheduler->enqueue(inbox.request("b"));
  inbox.wait_for(3);
  EXPECT_THAT(device.batches(), ElementsAre(ElementsAre("a", "b")));
}

TEST(Scheduler, CancelsWhileAllInstancesAreBusy) {
  Device device(false);
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 1), on(device));
  RequestPtr executing = inbox.request("a");
  scheduler->enqueue(executing);
  device.wait_for_batches(1);
  RequestPtr waiting = inbox.request("b");
  scheduler->enqueue(waiting);
  waiting->cancel();
  waiting->cancel();
  EXPECT_EQ(inbox.answer("b").status.code(), Code::kCancelled);
  EXPECT_EQ(inbox.answer("b").reason, FailureReason::kCanceled);
  executing->cancel();
  device.open();
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  executing->cancel();
  RequestPtr given_up_before = inbox.request("c");
  given_up_before->cancel();
  scheduler->enqueue(given_up_before);
  EXPECT_EQ(inbox.answer("c").status.code(), Code::kCancelled);
  EXPECT_EQ(scheduler->statistics()->snapshot().failures[static_cast<size_t>(FailureReason::kCanceled)], 2u);
}

TEST(Scheduler, CancelledHeadLetsTheOthersGo) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(
      batching_config("preferred_batch_size: 3 max_queue_delay_microseconds: 3600000000", 4), on(device));
  RequestPtr head = inbox.request("head", 2);
  scheduler->enqueue(head);
  // Two more would pass the preferred size, so the head alone would go; this one keeps it below.
  head->cancel();
  EXPECT_EQ(inbox.answer("head").status.code(), Code::kCancelled);
  scheduler->enqueue(inbox.request("a", 2));
  scheduler->enqueue(inbox.request("b", 1));
  inbox.wait_for(3);
  EXPECT_THAT(device.batches(), ElementsAre(ElementsAre("a", "b")));
}

TEST(Scheduler, StopExecutesAllThatWaits) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("max_queue_delay_microseconds: 3600000000", 8), on(device));
  for (const char* id : {"a", "b", "c"}) scheduler->enqueue(inbox.request(id));
  scheduler->stop(kDefaultGraceNs);
  EXPECT_EQ(inbox.order().size(), 3u);
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(inbox.answer(id).status.is_ok());
  scheduler->enqueue(inbox.request("late"));
  EXPECT_EQ(inbox.answer("late").status.code(), Code::kUnavailable);
  EXPECT_EQ(inbox.answer("late").status.message(),
            "Server is stopping, scheduler for model has stopped accepting new inference requests");
  scheduler->stop(kDefaultGraceNs);
}

TEST(Scheduler, StopGivesUpAfterItsGrace) {
  auto device = std::make_shared<Device>(false);
  Inbox inbox;
  {
    auto scheduler = make_scheduler(batching_config("", 1), [device](Batch& batch) { return device->execute(batch); });
    scheduler->enqueue(inbox.request("a"));
    device->wait_for_batches(1);
    scheduler->enqueue(inbox.request("b"));
    scheduler->stop(0);
    EXPECT_EQ(inbox.order().size(), 2u);
    EXPECT_EQ(inbox.answer("a").status.code(), Code::kUnavailable);
    EXPECT_EQ(inbox.answer("b").status.message(), "model 'm' was stopped before it could answer");
  }
  // The executor returns only now, to a scheduler that is gone; its answer goes nowhere.
  device->open();
  EXPECT_EQ(inbox.order().size(), 2u);
}

TEST(Scheduler, FailingBatchFailsNoOther) {
  Device device;
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 1), [](Batch& batch) -> Status {
    const std::string& id = batch.items[0].request->id;
    if (id == "fails") return out_of_memory("no room");
    if (id == "throws") throw std::runtime_error("oops");
    if (id == "throws oddly") throw 7;
    if (id == "partly") batch.items[0].status = invalid_argument("bad index");
    return Status::ok();
  });
  for (const char* id : {"a", "fails", "throws", "throws oddly", "partly", "b"}) scheduler->enqueue(inbox.request(id));
  inbox.wait_for(6);
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  EXPECT_EQ(inbox.answer("fails").status.code(), Code::kOutOfMemory);
  EXPECT_EQ(inbox.answer("fails").reason, FailureReason::kBackend);
  EXPECT_EQ(inbox.answer("throws").status.message(), "executing model 'm' threw: oops");
  EXPECT_EQ(inbox.answer("throws oddly").status.code(), Code::kInternal);
  EXPECT_EQ(inbox.answer("partly").status.message(), "bad index");
  EXPECT_TRUE(inbox.answer("b").status.is_ok());
  scheduler->stop(kDefaultGraceNs);
  EXPECT_EQ(scheduler->statistics()->snapshot().failures[static_cast<size_t>(FailureReason::kBackend)], 4u);
}

TEST(Scheduler, OneRequestOfABatchMayFail) {
  Inbox inbox;
  auto scheduler = make_scheduler(
      batching_config("preferred_batch_size: 2 max_queue_delay_microseconds: 3600000000", 2), [](Batch& batch) {
        batch.items[0].status = invalid_argument("bad index");
        return Status::ok();
      });
  scheduler->enqueue(inbox.request("a"));
  scheduler->enqueue(inbox.request("b"));
  EXPECT_FALSE(inbox.answer("a").status.is_ok());
  EXPECT_TRUE(inbox.answer("b").status.is_ok());
}

TEST(Scheduler, HungInstanceTakesNothingElseDown) {
  Device device(false);
  Inbox inbox;
  SchedulerOptions options;
  options.execution_timeout_ns = 2 * kMs;
  auto scheduler = make_scheduler(
      batching_config("", 1),
      [&](Batch& batch) { return batch.items[0].request->id == "hangs" ? device.execute(batch) : Status::ok(); }, 2,
      options);
  scheduler->enqueue(inbox.request("hangs"));
  EXPECT_THAT(inbox.answer("hangs").status.message(), HasSubstr("model 'm' did not finish a batch within 2 ms"));
  EXPECT_EQ(inbox.answer("hangs").status.code(), Code::kInternal);
  for (int i = 0; i < 20; ++i) {
    scheduler->enqueue(inbox.request(fmt::format("{}", i)));
    EXPECT_TRUE(inbox.answer(fmt::format("{}", i)).status.is_ok());
  }
  device.open();
}

TEST(Scheduler, WhenAllInstancesHangRequestsAreRefusedUntilOneReturns) {
  Device device(false);
  Inbox inbox;
  SchedulerOptions options;
  options.execution_timeout_ns = 2 * kMs;
  auto scheduler = make_scheduler(batching_config("", 1), on(device), 1, options);
  scheduler->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  scheduler->enqueue(inbox.request("b"));
  EXPECT_EQ(inbox.answer("a").status.code(), Code::kInternal);
  EXPECT_EQ(inbox.answer("b").status.message(), "all instances of model 'm' have stopped responding");
  scheduler->enqueue(inbox.request("c"));
  EXPECT_EQ(inbox.answer("c").status.code(), Code::kUnavailable);
  device.open();
  for (int i = 0;; ++i) {
    scheduler->enqueue(inbox.request(fmt::format("{}", i)));
    if (inbox.answer(fmt::format("{}", i)).status.is_ok()) break;
    std::this_thread::yield();
  }
}

TEST(Scheduler, PreserveOrderingHoldsBackTheFasterInstance) {
  Device slow(false);
  Inbox inbox;
  auto scheduler = make_scheduler(
      batching_config("preferred_batch_size: 1 preserve_ordering: true", 1),
      [&](Batch& batch) { return batch.items[0].request->id == "a" ? slow.execute(batch) : Status::ok(); }, 2);
  scheduler->enqueue(inbox.request("a"));
  slow.wait_for_batches(1);
  for (const char* id : {"b", "c", "d"}) scheduler->enqueue(inbox.request(id));
  while (scheduler->statistics()->snapshot().execution_count < 3) std::this_thread::yield();
  EXPECT_TRUE(inbox.order().empty());
  slow.open();
  inbox.wait_for(4);
  EXPECT_THAT(inbox.order(), ElementsAre("a", "b", "c", "d"));
}

TEST(Scheduler, InstancesExecuteAtTheSameTime) {
  Device device(false);
  Inbox inbox;
  auto scheduler = make_scheduler(batching_config("", 1), on(device), 3);
  for (int i = 0; i < 3; ++i) scheduler->enqueue(inbox.request(fmt::format("{}", i)));
  device.wait_for_batches(3);
  device.open();
  inbox.wait_for(3);
  EXPECT_EQ(device.most_running(), 3);
}

TEST(Scheduler, ArbiterLetsOneBatchRunAtATimeAndTheOthersGrow) {
  Device device(false);
  Inbox inbox;
  DeviceArbiter arbiter;
  SchedulerOptions options;
  options.arbiter = &arbiter;
  auto first = make_scheduler(batching_config("", 8), on(device), 2, options);
  auto second = make_scheduler(batching_config("", 8), on(device), 2, options);
  first->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  second->enqueue(inbox.request("b"));
  while (arbiter.waiting() == 0) std::this_thread::yield();
  for (const char* id : {"c", "d"}) second->enqueue(inbox.request(id));
  device.open();
  inbox.wait_for(4);
  EXPECT_THAT(device.batches(), ElementsAre(ElementsAre("a"), ElementsAre("b", "c", "d")));
  EXPECT_EQ(device.most_running(), 1);
}

TEST(Scheduler, CancelWhileWaitingForTheDevice) {
  Device device(false);
  Inbox inbox;
  DeviceArbiter arbiter;
  SchedulerOptions options;
  options.arbiter = &arbiter;
  auto first = make_scheduler(batching_config("", 8), on(device), 1, options);
  auto second = make_scheduler(batching_config("", 8), on(device), 1, options);
  first->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  RequestPtr waiting = inbox.request("b");
  second->enqueue(waiting);
  while (arbiter.waiting() == 0) std::this_thread::yield();
  waiting->cancel();
  EXPECT_EQ(inbox.answer("b").status.code(), Code::kCancelled);
  device.open();
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  second->enqueue(inbox.request("c"));
  EXPECT_TRUE(inbox.answer("c").status.is_ok()) << "the device was given back unused";
}

TEST(Scheduler, StopDoesNotWaitForADeviceThatOthersKeep) {
  Device device(false);
  Inbox inbox;
  DeviceArbiter arbiter;
  SchedulerOptions options;
  options.arbiter = &arbiter;
  auto first = make_scheduler(batching_config("", 8), on(device), 1, options);
  auto second = make_scheduler(batching_config("", 8), on(device), 1, options);
  first->enqueue(inbox.request("a"));
  device.wait_for_batches(1);
  second->enqueue(inbox.request("b"));
  while (arbiter.waiting() == 0) std::this_thread::yield();
  second->stop(0);
  EXPECT_EQ(inbox.answer("b").status.code(), Code::kUnavailable);
  device.open();
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
}

TEST(Scheduler, HungBatchGivesTheDeviceBack) {
  Device hanging(false);
  Inbox inbox;
  DeviceArbiter arbiter;
  SchedulerOptions options;
  options.arbiter = &arbiter;
  options.execution_timeout_ns = 2 * kMs;
  auto bad = make_scheduler(batching_config("", 1), on(hanging), 1, options);
  auto good = make_scheduler(
      batching_config("", 1), [](Batch&) { return Status::ok(); }, 1, options);
  bad->enqueue(inbox.request("hangs"));
  hanging.wait_for_batches(1);
  good->enqueue(inbox.request("a"));
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  hanging.open();
}

TEST(Scheduler, NeedsAnInstance) {
  auto scheduler = Scheduler::create(batching_config("", 4), {}, {});
  ASSERT_FALSE(scheduler.is_ok());
  EXPECT_EQ(scheduler.status().message(), "model 'm' has no instance to execute its requests");
}

}  // namespace
}  // namespace flywheel::schedule
