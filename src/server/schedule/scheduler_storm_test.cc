// SPDX-License-Identifier: Apache-2.0
// Many threads at once, and many rounds: what a data race or a lost wake-up would break. Meant to be run with the
// thread sanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "server/schedule/scheduler_test_data.h"

namespace flywheel::schedule {
namespace {

// One request at a time, each sent from the answer of the one before: a single lost wake-up would stop it.
TEST(Scheduler, NoWakeUpIsLost) {
  for (int instances : {1, 3}) {
    auto scheduler = make_scheduler(
        batching_config("", 4), [](Batch&) { return Status::ok(); }, instances);
    std::mutex mutex;
    std::condition_variable changed;
    int done = 0;
    constexpr int kRounds = 3000;
    for (int round = 0; round < kRounds; ++round) {
      auto request = std::make_shared<InferRequest>();
      request->on_response = [&](InferRequest&, const InferResponse& response) {
        std::lock_guard lock(mutex);
        EXPECT_TRUE(response.status.is_ok()) << response.status.to_string();
        ++done;
        changed.notify_one();
      };
      scheduler->enqueue(request);
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return done == round + 1; }));
    }
  }
}

TEST(Scheduler, WhatIsQuickRunsWhereItComesFrom) {
  SchedulerOptions options;
  options.latency_curve.points = {{1, 5'000, 6'000}, {4, 50'000, 60'000}};
  std::thread::id executed_by;
  auto scheduler = make_scheduler(
      batching_config("", 4),
      [&](Batch&) {
        executed_by = std::this_thread::get_id();
        return Status::ok();
      },
      1, options);
  Inbox inbox;
  auto runs_here = [&](const std::string& id, int64_t batch_size) {
    // The instance has to have gone to rest before.
    for (int i = 0; i < 200; ++i) {
      const std::string name = id + std::to_string(i);
      scheduler->enqueue(inbox.request(name, batch_size));
      EXPECT_TRUE(inbox.answer(name).status.is_ok());
      if (executed_by == std::this_thread::get_id()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  EXPECT_TRUE(runs_here("one", 1));
  EXPECT_FALSE(runs_here("four", 4)) << "that takes longer than a wake-up";
  scheduler->stop(kDefaultGraceNs);
  EXPECT_EQ(scheduler->statistics()->snapshot().executing_batches, 0);
}

TEST(Scheduler, StopWaitsForWhatACallerExecutes) {
  SchedulerOptions options;
  options.latency_curve.points = {{1, 5'000, 6'000}};
  Device device(false);
  auto scheduler = make_scheduler(batching_config("", 4), on(device), 1, options);
  Inbox inbox;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread caller([&] { scheduler->enqueue(inbox.request("a")); });
  device.wait_for_batches(1);
  scheduler->enqueue(inbox.request("b"));
  std::thread stopper([&] { scheduler->stop(kDefaultGraceNs); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  device.open();
  stopper.join();
  caller.join();
  EXPECT_TRUE(inbox.answer("a").status.is_ok());
  EXPECT_TRUE(inbox.answer("b").status.is_ok());
}

struct Totals {
  std::atomic<int> answered{0};
  std::atomic<int> succeeded{0};
  std::atomic<int> twice{0};
};

// Producers, cancellers, failing batches, time limits, full queues and a stop in the middle, all at once.
void run_storm(const std::string& batching, int instances, DeviceArbiter* arbiter, uint64_t seed, bool quick = false) {
  constexpr int kProducers = 4;
  constexpr int kRequests = 400;
  Totals totals;
  SchedulerOptions options;
  options.arbiter = arbiter;
  if (quick) options.latency_curve.points = {{8, 1000, 1000}};
  auto scheduler = make_scheduler(
      batching_config(batching, 8),
      [](Batch& batch) {
        int64_t rows = 0;
        for (const BatchItem& item : batch.items) rows += item.request->batch_size;
        if (rows != batch.batch_size || rows > 8) return internal_error("wrong rows");
        return batch.items[0].request->timeout_us % 13 == 12 ? internal_error("fails") : Status::ok();
      },
      instances, options);
  std::atomic<int> sent{0};
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      std::mt19937_64 random(seed * 100 + static_cast<uint64_t>(p));
      std::deque<RequestPtr> recent;
      for (int i = 0; i < kRequests; ++i) {
        auto request = std::make_shared<InferRequest>();
        auto count = std::make_shared<std::atomic<int>>(0);
        request->batch_size = 1 + static_cast<int64_t>(random() % 9);  // 9 is one too many
        request->priority = random() % 4;
        request->timeout_us = random() % 3000;
        request->signature = {static_cast<int64_t>(random() % 2)};
        request->on_response = [&totals, count](InferRequest&, InferResponse response) {
          if (count->fetch_add(1) != 0) ++totals.twice;
          if (response.status.is_ok()) ++totals.succeeded;
          ++totals.answered;
        };
        scheduler->enqueue(request);
        ++sent;
        recent.push_back(std::move(request));
        if (recent.size() > 8) recent.pop_front();
        if (random() % 3 == 0) recent[random() % recent.size()]->cancel();
      }
    });
  }
  threads.emplace_back([&] {
    while (sent < kProducers * kRequests / 2) std::this_thread::yield();
    scheduler->stop(kDefaultGraceNs);
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(totals.answered, kProducers * kRequests);
  EXPECT_EQ(totals.twice, 0);
  const StatisticsSnapshot statistics = scheduler->statistics()->snapshot();
  EXPECT_EQ(statistics.success.count, static_cast<uint64_t>(totals.succeeded));
  EXPECT_EQ(statistics.success.count + statistics.fail.count, static_cast<uint64_t>(kProducers * kRequests));
  EXPECT_EQ(statistics.pending_requests, 0);
  EXPECT_EQ(statistics.executing_batches, 0);
}

TEST(Scheduler, StormLosesNothing) {
  const std::string batchings[] = {
      "", "preserve_ordering: true max_queue_delay_microseconds: 50",
      "preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 200 priority_levels: 3 default_priority_level: 2 "
      "default_queue_policy { default_timeout_microseconds: 2000 allow_timeout_override: true max_queue_size: 16 } "
      "priority_queue_policy { key: 3 value { timeout_action: DELAY default_timeout_microseconds: 100 } }"};
  uint64_t seed = 1;
  for (const std::string& batching : batchings) {
    for (int instances : {1, 3}) {
      DeviceArbiter arbiter;
      run_storm(batching, instances, nullptr, seed++);
      run_storm(batching, instances, &arbiter, seed++);
      run_storm(batching, instances, &arbiter, seed++, true);
    }
  }
}

}  // namespace
}  // namespace flywheel::schedule
