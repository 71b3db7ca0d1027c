// SPDX-License-Identifier: Apache-2.0
// One thread that serves many connections: it waits for sockets, timers and finished answers, and never blocks on
// anything else. All reactors of a server accept from one listening socket and give each new connection to the one that
// has the fewest. Owned by HttpServer. Threads: its own, but for the functions that say otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/http/connection.h"

namespace flywheel::http {

class Reactor {
 public:
  Reactor(int number, const HttpOptions& options, Handler& handler, std::shared_ptr<BodyBudget> budget,
          SlowLane& slow_lane);
  ~Reactor();  // REQUIRES: stop_and_join() if started

  // Before any thread starts. `peers`: all reactors of the server, this one included.
  Status prepare(int listening_socket, const std::vector<std::unique_ptr<Reactor>>* peers);
  void start();
  // Any thread. Accepts what waits, then no more; answers what arrives with 503; closes idle connections.
  void begin_drain();
  bool drain_entered() const { return drain_entered_.load(std::memory_order_acquire); }  // any thread
  bool drained() const;  // any thread: it accepts no more and no connection is open
  void stop_and_join();  // closes whatever is open
  const HttpCounters& counters() const { return counters_; }

 private:
  void run();
  void handle_events(int timeout_ms);
  void finish_round();
  void settle(ExchangePtr exchange);
  void accept_connections();
  void adopt(int socket);
  bool make_room();
  void scan_deadlines();
  void enter_drain();
  void set_listening(bool listening);

  const HttpOptions& options_;
  const int number_;
  ReactorContext context_;
  HttpCounters counters_;
  const std::vector<std::unique_ptr<Reactor>>* peers_ = nullptr;
  int listening_socket_ = -1;
  bool listening_ = false;
  int64_t listen_again_ns_ = 0;  // after running out of file descriptors
  int64_t next_scan_ns_ = 0;
  int64_t scan_interval_ns_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<ExchangePtr> finished_;  // by handlers on this thread, or drained from the inbox
  std::vector<ExchangePtr> settling_;
  std::vector<int> new_sockets_;
  std::atomic<int> connection_count_{0};  // with those on their way here
  std::atomic<bool> drain_wanted_{false};
  std::atomic<bool> drain_entered_{false};
  std::atomic<bool> stop_wanted_{false};
  std::thread thread_;
};

}  // namespace flywheel::http
