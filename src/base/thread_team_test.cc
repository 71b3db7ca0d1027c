// SPDX-License-Identifier: Apache-2.0
#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace flywheel {
namespace {

TEST(ThreadTeam, EveryMemberRunsOnceWithItsRank) {
  for (int size : {1, 2, 5}) {
    auto team = ThreadTeam::create(size);
    ASSERT_TRUE(team.is_ok());
    std::vector<int> calls(static_cast<size_t>(size), 0);
    for (int round = 0; round < 100; ++round) {
      (*team)->run([&](Worker& worker) {
        EXPECT_EQ(worker.size(), size);
        ++calls[static_cast<size_t>(worker.rank())];
      });
    }
    for (int count : calls) EXPECT_EQ(count, 100);
  }
}

TEST(ThreadTeam, BarrierMakesWritesVisible) {
  auto team = ThreadTeam::create(3);
  ASSERT_TRUE(team.is_ok());
  std::vector<int64_t> values(3, 0);
  (*team)->run([&](Worker& worker) {
    for (int64_t step = 1; step <= 2000; ++step) {
      values[static_cast<size_t>(worker.rank())] = step * (worker.rank() + 1);
      worker.barrier();
      EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), step * 6);
      worker.barrier();
    }
  });
}

TEST(ThreadTeam, WakesMembersThatParked) {
  auto team = ThreadTeam::create(2);
  ASSERT_TRUE(team.is_ok());
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    (*team)->run([&](Worker&) { calls.fetch_add(1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough to park
  }
  EXPECT_EQ(calls.load(), 40);
}

TEST(ThreadTeam, SharesCoverAllWorkOnce) {
  auto team = ThreadTeam::create(4);
  ASSERT_TRUE(team.is_ok());
  for (int64_t count : {0, 1, 3, 4, 17, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    (*team)->run([&](Worker& worker) {
      const Worker::Range range = worker.share(count);
      EXPECT_LE(range.end - range.begin, count / 4 + 1);
      for (int64_t i = range.begin; i < range.end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
    });
    for (auto& item : seen) EXPECT_EQ(item.load(), 1);
  }
}

TEST(ThreadTeam, RefusesBadSizes) {
  for (int size : {-1, 0, 1025}) {
    auto team = ThreadTeam::create(size);
    ASSERT_FALSE(team.is_ok());
    EXPECT_EQ(team.status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace flywheel
