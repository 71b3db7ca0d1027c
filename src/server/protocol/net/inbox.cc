// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/net/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace flywheel::net {

thread_local std::vector<CompletionPtr>* Inbox::own_finished = nullptr;
thread_local Inbox* Inbox::own = nullptr;

Inbox::Inbox() : event_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Inbox::~Inbox() {
  close();
  if (event_fd_ >= 0) ::close(event_fd_);
}

void Inbox::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the reactor is awake anyway.
  [[maybe_unused]] ssize_t written = ::write(event_fd_, &one, sizeof one);
}

void Inbox::post(CompletionPtr completion) {
  if (own == this) {
    own_finished->push_back(std::move(completion));
    return;
  }
  bool signal = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;  // the reactor is gone, and with it the client
    completions_.push_back(std::move(completion));
    signal = !signalled_;
    signalled_ = true;
  }
  // One wake-up for all answers of a batch.
  if (signal) wake();
}

void Inbox::adopt(int socket) {
  bool signal = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      ::close(socket);
      return;
    }
    sockets_.push_back(socket);
    signal = !signalled_;
    signalled_ = true;
  }
  if (signal) wake();
}

void Inbox::drain(std::vector<CompletionPtr>& completions, std::vector<int>& sockets) {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = ::read(event_fd_, &count, sizeof count);
  std::lock_guard lock(mutex_);
  signalled_ = false;
  for (CompletionPtr& completion : completions_) completions.push_back(std::move(completion));
  completions_.clear();
  sockets.insert(sockets.end(), sockets_.begin(), sockets_.end());
  sockets_.clear();
}

void Inbox::close() {
  std::vector<CompletionPtr> completions;
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (int socket : sockets_) ::close(socket);
  sockets_.clear();
  completions.swap(completions_);
}

}  // namespace flywheel::net
