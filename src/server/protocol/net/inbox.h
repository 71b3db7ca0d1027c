// SPDX-License-Identifier: Apache-2.0
// Completions and new connections on their way to a reactor's thread, which sleeps on event_fd(). Shared by the reactor
// and everything that may still post; what comes after the reactor's end is dropped. Any thread, but for drain().
#pragma once

#include <mutex>
#include <vector>

#include "server/protocol/net/completion.h"

namespace flywheel::net {

class Inbox {
 public:
  Inbox();
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  int event_fd() const { return event_fd_; }
  void post(CompletionPtr completion);
  void adopt(int socket);
  void wake();
  // The reactor's thread only. Appends what has arrived.
  void drain(std::vector<CompletionPtr>& completions, std::vector<int>& sockets);
  // Sockets that arrive from now on are closed.
  void close();
  // Where the calling thread's own reactor collects its completions, without lock or wake-up; null elsewhere.
  static thread_local std::vector<CompletionPtr>* own_finished;
  static thread_local Inbox* own;

 private:
  const int event_fd_;
  std::mutex mutex_;
  bool signalled_ = false;
  bool closed_ = false;
  std::vector<CompletionPtr> completions_;
  std::vector<int> sockets_;
};

}  // namespace flywheel::net
