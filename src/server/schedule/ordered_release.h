// SPDX-License-Identifier: Apache-2.0
// Hands out the answers of batches, in the order in which the batches were formed when that is asked for: an instance
// that finishes early leaves its answers here until the batches before it are answered. The scheduler and the simulator
// use it. Thread safety: all of it may be called from any thread. Answers are delivered by one thread at a time,
// outside the lock.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "server/schedule/request.h"

namespace flywheel::schedule {

using Answers = std::vector<std::pair<RequestPtr, InferResponse>>;

class OrderedRelease {
 public:
  explicit OrderedRelease(bool preserve_order) : preserve_order_(preserve_order) {}

  // A batch's place in the order; to be taken when it is formed. Every ticket must be completed once.
  uint64_t take_ticket();
  // The batch is done: answers it and those that waited for it, or leaves that to the thread that answers already.
  void complete(uint64_t ticket, Answers answers);

 private:
  const bool preserve_order_;
  std::mutex mutex_;
  uint64_t next_ticket_ = 0;
  uint64_t next_release_ = 0;
  bool releasing_ = false;
  std::map<uint64_t, Answers> waiting_;
};

}  // namespace flywheel::schedule
