// SPDX-License-Identifier: Apache-2.0
// A listening socket with its reactors, for whatever protocol the loops speak. Each protocol's server owns one. Any
// thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/net/reactor.h"

namespace flywheel::net {

struct ListenerOptions {
  std::string name;                 // in the log: "HTTP service"
  std::string thread_name;          // "fw-http"
  std::string address = "0.0.0.0";  // or "unix:<path>"
  uint16_t port = 0;                // 0: any free one
  bool reuse_port = false;          // other processes may listen on the same port
  int threads = 1;
  int max_connections = 16384;
  int64_t busy_poll_us = 0;            // how long a reactor that is busy asks for the next event before it sleeps
  int64_t shortest_timeout_ms = 1000;  // of those that connections check: how often they are asked follows from it
};

class Listener {
 public:
  // Listens and serves when it returns. `make_loop` is called once for each reactor, with its number. Errors name the
  // address and the port.
  static Result<std::unique_ptr<Listener>> start(const ListenerOptions& options,
                                                 const std::function<std::unique_ptr<Loop>(int)>& make_loop);
  ~Listener();  // closes whatever is open
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const { return port_; }
  // From its return on no new connections. Takes a millisecond.
  void begin_drain();
  // Waits until all connections are closed, for `timeout_ms` at most.
  void wait_until_drained(int64_t timeout_ms) const;
  // Closes what is left.
  void stop_and_join();

 private:
  explicit Listener(const ListenerOptions& options) : options_(options) {}
  Status listen();
  Status listen_at_path(const std::string& path);

  const ListenerOptions options_;
  int socket_ = -1;
  uint16_t port_ = 0;
  std::string path_;  // of a Unix socket, to remove
  std::vector<std::unique_ptr<Reactor>> reactors_;
};

}  // namespace flywheel::net
