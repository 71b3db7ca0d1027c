// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/ordered_release.h"

namespace flywheel::schedule {
namespace {

void deliver(Answers& answers) {
  for (auto& [request, response] : answers) {
    request->respond(std::move(response));
    request.reset();
  }
}

}  // namespace

uint64_t OrderedRelease::take_ticket() {
  std::lock_guard lock(mutex_);
  return next_ticket_++;
}

void OrderedRelease::complete(uint64_t ticket, Answers answers) {
  if (!preserve_order_) {
    deliver(answers);
    return;
  }
  std::unique_lock lock(mutex_);
  waiting_.emplace(ticket, std::move(answers));
  // One thread at a time, or two that hold consecutive batches could overtake each other on the way out.
  if (releasing_) return;
  releasing_ = true;
  for (auto it = waiting_.find(next_release_); it != waiting_.end(); it = waiting_.find(next_release_)) {
    Answers next = std::move(it->second);
    waiting_.erase(it);
    ++next_release_;
    lock.unlock();
    deliver(next);
    lock.lock();
  }
  releasing_ = false;
}

}  // namespace flywheel::schedule
