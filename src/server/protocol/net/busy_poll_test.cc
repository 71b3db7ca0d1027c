// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/busy_poll.h"

#include <gtest/gtest.h>

namespace flywheel::net {
namespace {

constexpr int64_t kBudgetNs = 50'000;

void note(BusyPoll& poll, int64_t wait_ns, int times) {
  for (int i = 0; i < times; ++i) poll.note_wait(wait_ns);
}

TEST(BusyPollTest, PaysOnceRequestsComeInQuickSuccession) {
  BusyPoll poll(kBudgetNs);
  EXPECT_FALSE(poll.is_worthwhile());
  note(poll, kBudgetNs, 7);
  EXPECT_FALSE(poll.is_worthwhile());
  note(poll, kBudgetNs, 1);
  EXPECT_TRUE(poll.is_worthwhile());
}

TEST(BusyPollTest, EndsSoonAfterRequestsBecomeRare) {
  BusyPoll poll(kBudgetNs);
  note(poll, 0, 1000);
  note(poll, kBudgetNs + 1, 2);
  EXPECT_TRUE(poll.is_worthwhile());
  note(poll, kBudgetNs + 1, 1);
  EXPECT_FALSE(poll.is_worthwhile());
}

TEST(BusyPollTest, AQuarterOfLongWaitsIsTooMany) {
  BusyPoll poll(kBudgetNs);
  note(poll, 0, 1000);
  for (int i = 0; i < 20; ++i) {
    note(poll, 1'000'000, 1);
    note(poll, 0, 3);
  }
  EXPECT_FALSE(poll.is_worthwhile());
}

TEST(BusyPollTest, NoBudgetNoPolling) {
  BusyPoll poll(0);
  note(poll, 0, 1000);
  EXPECT_FALSE(poll.is_worthwhile());
}

}  // namespace
}  // namespace flywheel::net
