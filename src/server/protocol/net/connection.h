// SPDX-License-Identifier: Apache-2.0
// What a reactor needs of the protocol that it serves: connections, and the loop that they share. A protocol derives
// from both; the reactor owns both and calls them from its thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/protocol/net/inbox.h"

namespace flywheel::net {

class Connection {
 public:
  virtual ~Connection() = default;  // closes
  virtual void on_events(uint32_t events) = 0;
  // Sends what is ready. The connection asks for it by Loop::to_flush, once a round.
  virtual void flush() = 0;
  // Closes what took too long.
  virtual void check_deadlines() = 0;
  // The server stops: nothing new is to be begun, and the connection closes when it has answered what it took.
  virtual void on_drain() = 0;
  virtual bool is_idle() const = 0;
  virtual int64_t idle_since_ns() const = 0;
  // Puts itself into Loop::to_destroy.
  virtual void close_now() = 0;
  virtual bool closed() const = 0;

 private:
  friend class Reactor;
  size_t index_ = 0;  // in the reactor's list
};

// What the connections of one reactor share.
class Loop {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  virtual ~Loop() = default;
  virtual std::unique_ptr<Connection> connect(int socket) = 0;
  // A connection beyond the limit: says so if the protocol can, without waiting. The reactor closes it.
  virtual void refuse(int socket) = 0;
  // Closes a connection's socket and makes sure that no event comes for it any more: closing alone does not while a
  // process that is being forked holds the socket open.
  void close_socket(int socket) const;
  // Once alarm_ns has passed, after which it is kNever until it is set again.
  virtual void on_alarm() {}

  std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
  int epoll_fd = -1;
  int64_t now_ns = 0;  // read once for each round of the loop
  int64_t alarm_ns = kNever;
  bool draining = false;
  std::string scratch;                  // what sockets are received into
  std::vector<Connection*> to_flush;    // have something new to send
  std::vector<Connection*> to_destroy;  // closed in this round
};

}  // namespace flywheel::net
