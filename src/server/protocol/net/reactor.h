// SPDX-License-Identifier: Apache-2.0
// One thread that serves many connections: it waits for sockets, timers and finished answers, and never blocks on
// anything else. All reactors of a listener accept from one listening socket and give each new connection to the one
// that has the fewest. Owned by Listener. Threads: its own, but for the functions that say otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/net/busy_poll.h"
#include "server/protocol/net/connection.h"

struct epoll_event;

namespace flywheel::net {

struct ReactorOptions {
  std::string name;
  std::string thread_name;
  int max_connections = 16384;  // of all reactors
  int64_t shortest_timeout_ms = 1000;
  int64_t busy_poll_us = 0;
};

class Reactor {
 public:
  Reactor(int number, ReactorOptions options, std::unique_ptr<Loop> loop);
  ~Reactor();  // REQUIRES: stop_and_join() if started

  // Before any thread starts. `peers`: all reactors of the listener, this one included.
  Status prepare(int listening_socket, const std::vector<std::unique_ptr<Reactor>>* peers);
  void start();
  // Any thread. Accepts what waits, then no more, and tells all connections.
  void begin_drain();
  bool drain_entered() const { return drain_entered_.load(std::memory_order_acquire); }  // any thread
  bool drained() const;  // any thread: it accepts no more and no connection is open
  void stop_and_join();  // closes whatever is open

 private:
  void run();
  int timeout_ms() const;
  int wait_for_events(std::span<epoll_event> events, int timeout_ms);
  void handle_events(int timeout_ms);
  void finish_round();
  void accept_connections();
  void take_over(int socket);
  void adopt(int socket);
  void refuse(int socket);
  bool make_room();
  void ask_peers_to_accept();
  bool is_client_waiting() const;
  int total_connections() const;
  void scan_deadlines();
  void enter_drain();
  void set_listening(bool listening);

  const ReactorOptions options_;
  const int number_;
  const std::unique_ptr<Loop> loop_;
  const std::vector<std::unique_ptr<Reactor>>* peers_ = nullptr;
  int listening_socket_ = -1;
  bool listening_ = false;
  BusyPoll busy_poll_;
  int64_t listen_again_ns_ = 0;  // after running out of file descriptors
  int64_t next_warning_ns_ = 0;  // of that
  int64_t next_scan_ns_ = 0;
  int64_t scan_interval_ns_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<CompletionPtr> finished_;  // by handlers on this thread, or drained from the inbox
  std::vector<CompletionPtr> settling_;
  std::vector<int> new_sockets_;
  std::atomic<int> connection_count_{0};    // with those on their way here
  std::atomic<bool> accept_wanted_{false};  // by a peer that has no descriptor and no idle connection to close for one
  std::atomic<bool> drain_wanted_{false};
  std::atomic<bool> drain_entered_{false};
  std::atomic<bool> stop_wanted_{false};
  std::thread thread_;
};

}  // namespace flywheel::net
