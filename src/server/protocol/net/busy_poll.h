// SPDX-License-Identifier: Apache-2.0
// Whether a reactor asks for events without sleeping for a while: waking a thread that sleeps costs more than many a
// request does. It pays where the next request comes soon after the last answer, so the waits before decide. Owned and
// called by Reactor, on its thread.
#pragma once

#include <cstdint>

namespace flywheel::net {

class BusyPoll {
 public:
  // `budget_ns`: the longest that a wait may poll before it sleeps; 0: none does.
  explicit BusyPoll(int64_t budget_ns) : budget_ns_(budget_ns) {}

  int64_t budget_ns() const { return budget_ns_; }
  // Of the last waits, at least four in five ended within the budget.
  bool is_worthwhile() const { return budget_ns_ > 0 && score_ >= kWorthwhile; }
  // After each wait, polled or slept: how long it took until an event came.
  void note_wait(int64_t wait_ns) {
    score_ = wait_ns <= budget_ns_ ? score_ + 1 : score_ - kPriceOfMiss;
    score_ = score_ < 0 ? 0 : score_ > kHighest ? kHighest : score_;
  }

 private:
  static constexpr int kPriceOfMiss = 4, kWorthwhile = 8, kHighest = 16;
  const int64_t budget_ns_;
  int score_ = 0;
};

}  // namespace flywheel::net
