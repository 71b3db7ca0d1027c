// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/arbiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace flywheel::schedule {
namespace {

using ::testing::ElementsAre;
using Client = std::shared_ptr<DeviceArbiter::Client>;

// A device whose clock the test moves: lets the waiting clients run one after the other and tells in which order.
class Bench {
 public:
  explicit Bench(int slots = 1) : arbiter(slots, [this] { return now_ns.load(); }) {}

  // `client` asks for the device; returns when it waits. It uses the device for `length_ns` once it has it.
  void ask(const Client& client, int name, int64_t length_ns) {
    const int before = arbiter.waiting();
    threads.emplace_back([this, client, name, length_ns] {
      DeviceArbiter::Lease lease = arbiter.acquire(client);
      order.push_back(name);  // one lease at a time guards it
      now_ns += length_ns;
    });
    while (arbiter.waiting() == before) std::this_thread::yield();
  }
  std::vector<int> let_run(DeviceArbiter::Lease held) {
    held.release();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    return std::exchange(order, {});
  }

  std::atomic<int64_t> now_ns{0};
  DeviceArbiter arbiter;
  std::vector<std::thread> threads;
  std::vector<int> order;
};

TEST(Arbiter, FirstComeFirstServedWithinAModel) {
  Bench bench;
  Client client = bench.arbiter.add_client(1, 1);
  auto held = bench.arbiter.acquire(client);
  for (int i = 0; i < 4; ++i) bench.ask(client, i, 1000);
  EXPECT_THAT(bench.let_run(std::move(held)), ElementsAre(0, 1, 2, 3));
}

TEST(Arbiter, LowerClassNumberGoesFirst) {
  Bench bench;
  Client high = bench.arbiter.add_client(0, 1);
  Client normal = bench.arbiter.add_client(1, 1);
  Client low = bench.arbiter.add_client(2, 1);
  auto held = bench.arbiter.acquire(normal);
  bench.ask(low, 3, 10);
  bench.ask(normal, 2, 10);
  bench.ask(high, 1, 10);
  bench.ask(high, 1, 10);
  EXPECT_THAT(bench.let_run(std::move(held)), ElementsAre(1, 1, 2, 3));
}

TEST(Arbiter, SharesTimeNotTurns) {
  Bench bench;
  Client holder = bench.arbiter.add_client(1, 1);
  Client slow = bench.arbiter.add_client(1, 1);
  Client quick = bench.arbiter.add_client(1, 1);
  auto held = bench.arbiter.acquire(holder);
  for (int i = 0; i < 2; ++i) bench.ask(slow, 1, 3'000'000);
  for (int i = 0; i < 5; ++i) bench.ask(quick, 2, 1'000'000);
  // One of the slow model's batches is worth three of the quick one's.
  EXPECT_THAT(bench.let_run(std::move(held)), ElementsAre(1, 2, 2, 2, 1, 2, 2));
}

TEST(Arbiter, WeightIsAShare) {
  Bench bench;
  Client holder = bench.arbiter.add_client(1, 1);
  Client light = bench.arbiter.add_client(1, 1);
  Client heavy = bench.arbiter.add_client(1, 3);
  auto held = bench.arbiter.acquire(holder);
  for (int i = 0; i < 8; ++i) bench.ask(light, 1, 1'000'000);
  for (int i = 0; i < 8; ++i) bench.ask(heavy, 3, 1'000'000);
  const std::vector<int> order = bench.let_run(std::move(held));
  EXPECT_EQ(std::count(order.begin(), order.begin() + 8, 3), 6);
}

TEST(Arbiter, IdleTimeIsNotSavedUp) {
  Bench bench;
  Client busy = bench.arbiter.add_client(1, 1);
  Client idle = bench.arbiter.add_client(1, 1);
  for (int i = 0; i < 100; ++i) {
    auto lease = bench.arbiter.acquire(busy);
    bench.now_ns += 1'000'000;
  }
  auto held = bench.arbiter.acquire(busy);
  for (int i = 0; i < 3; ++i) bench.ask(idle, 2, 1'000'000);
  for (int i = 0; i < 3; ++i) bench.ask(busy, 1, 1'000'000);
  EXPECT_THAT(bench.let_run(std::move(held)), ElementsAre(2, 1, 2, 1, 2, 1));
}

TEST(Arbiter, SeveralSlots) {
  DeviceArbiter arbiter(2);
  Client client = arbiter.add_client(1, 1);
  auto first = arbiter.acquire(client);
  auto second = arbiter.acquire(client);
  EXPECT_TRUE(first.is_held());
  EXPECT_TRUE(second.is_held());
  std::atomic<bool> third{false};
  std::thread thread([&] {
    auto lease = arbiter.acquire(client);
    third = lease.is_held();
  });
  while (arbiter.waiting() == 0) std::this_thread::yield();
  EXPECT_FALSE(third);
  second.release();
  second.release();
  thread.join();
  EXPECT_TRUE(third);
}

TEST(Arbiter, CancelledClientGetsNothing) {
  DeviceArbiter arbiter;
  Client stays = arbiter.add_client(1, 1);
  Client goes = arbiter.add_client(1, 1);
  auto held = arbiter.acquire(stays);
  std::atomic<bool> got{true};
  std::thread thread([&] { got = arbiter.acquire(goes).is_held(); });
  while (arbiter.waiting() == 0) std::this_thread::yield();
  arbiter.cancel(goes);
  thread.join();
  EXPECT_FALSE(got);
  EXPECT_FALSE(arbiter.acquire(goes).is_held());
  held.release();
  EXPECT_FALSE(arbiter.acquire(goes).is_held());
  EXPECT_TRUE(arbiter.acquire(stays).is_held());
}

TEST(Arbiter, TryingDoesNotWait) {
  DeviceArbiter arbiter;
  Client first = arbiter.add_client(1, 1), second = arbiter.add_client(1, 1);
  auto lease = arbiter.try_acquire(first);
  EXPECT_TRUE(lease.is_held());
  EXPECT_FALSE(arbiter.try_acquire(second).is_held());
  lease.release();
  EXPECT_TRUE(arbiter.try_acquire(second).is_held());
  arbiter.cancel(first);
  EXPECT_FALSE(arbiter.try_acquire(first).is_held());
}

TEST(Arbiter, LeaseMoves) {
  DeviceArbiter arbiter;
  Client client = arbiter.add_client(1, 1);
  DeviceArbiter::Lease lease = arbiter.acquire(client);
  DeviceArbiter::Lease other = std::move(lease);
  EXPECT_TRUE(other.is_held());
  other = DeviceArbiter::Lease();
  EXPECT_TRUE(arbiter.acquire(client).is_held());
}

DeviceArbiter::Needs needing(std::map<std::string, uint32_t> resources, double turn_cost = 1) {
  return {.resources = std::move(resources), .turn_cost = turn_cost, .needs_slot = true};
}

TEST(RateLimits, AResourceIsHeldByAsManyAsThereIsOfIt) {
  DeviceArbiter arbiter(4);
  arbiter.limit({{"R", 4}});
  const auto large = arbiter.add_client(1, 1, needing({{"R", 3}}));
  const auto small = arbiter.add_client(1, 1, needing({{"R", 2}}));
  const auto other = arbiter.add_client(1, 1, needing({{"S", 1}}));
  DeviceArbiter::Lease first = arbiter.try_acquire(large);
  EXPECT_TRUE(first.is_held());
  EXPECT_FALSE(arbiter.try_acquire(small).is_held());
  EXPECT_TRUE(arbiter.try_acquire(other).is_held());
  first.release();
  EXPECT_TRUE(arbiter.try_acquire(small).is_held());
}

TEST(RateLimits, WhatCanNeverRunIsSaid) {
  DeviceArbiter arbiter(4);
  arbiter.limit({{"R", 4}});
  EXPECT_TRUE(arbiter.check(needing({{"R", 4}, {"S", 100}})).is_ok());
  EXPECT_EQ(
      arbiter.check(needing({{"R", 5}})).message(),
      "Resource count for \"R\" is limited to 4 which will prevent scheduling of one or more model instances, the "
      "minimum required count is 5");
}

TEST(RateLimits, WithoutALimitThereIsWhatTheLargestNeeds) {
  DeviceArbiter arbiter(4);
  const auto large = arbiter.add_client(1, 1, needing({{"R", 5}}));
  const auto small = arbiter.add_client(1, 1, needing({{"R", 2}}));
  DeviceArbiter::Lease a = arbiter.try_acquire(small), b = arbiter.try_acquire(small);
  EXPECT_TRUE(a.is_held() && b.is_held());
  EXPECT_FALSE(arbiter.try_acquire(small).is_held());
  a.release();
  b.release();
  EXPECT_TRUE(arbiter.try_acquire(large).is_held());
}

TEST(RateLimits, PrioritiesAreSharesOfTurns) {
  DeviceArbiter arbiter(1);
  const auto often = arbiter.add_client(1, 1, needing({{"R", 1}}, 1)),
             seldom = arbiter.add_client(1, 1, needing({{"R", 1}}, 2));
  std::atomic<int> turns[2] = {0, 0};
  std::atomic<bool> over{false};
  auto work = [&](const std::shared_ptr<DeviceArbiter::Client>& client, int index) {
    while (!over) {
      DeviceArbiter::Lease lease = arbiter.acquire(client);
      ++turns[index];
      // Both have something waiting whenever a turn ends.
      while (arbiter.waiting() < 3 && !over) std::this_thread::yield();
      if (turns[0] + turns[1] >= 300) over = true;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back(work, often, 0);
    threads.emplace_back(work, seldom, 1);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NEAR(turns[0], 200, 5);
  EXPECT_NEAR(turns[1], 100, 5);
}

TEST(RateLimits, OneThatWaitsForAResourceIsNotOvertaken) {
  DeviceArbiter arbiter(4);
  arbiter.limit({{"R", 2}});
  const auto small = arbiter.add_client(1, 1, needing({{"R", 1}}, 1));
  const auto large = arbiter.add_client(0, 1, needing({{"R", 2}}, 1));
  DeviceArbiter::Lease held = arbiter.acquire(small);
  std::thread waiting([&] { EXPECT_TRUE(arbiter.acquire(large).is_held()); });
  while (arbiter.waiting() < 1) std::this_thread::yield();
  EXPECT_FALSE(arbiter.try_acquire(small).is_held());
  held.release();
  waiting.join();
}

}  // namespace
}  // namespace flywheel::schedule
