// SPDX-License-Identifier: Apache-2.0
// A listener that speaks HTTP/1.1 for one handler. The server makes one for the inference protocol and
// one for /metrics. Threads: `threads` reactors and as many for the slow lane; any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/http/exchange.h"
#include "server/protocol/http/options.h"
#include "server/protocol/http/slow_lane.h"
#include "server/protocol/net/listener.h"

namespace flywheel::http {

class HttpServer {
 public:
  // Listens and serves when it returns. Errors name the address and the port.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options, std::shared_ptr<Handler> handler);
  ~HttpServer();  // closes whatever is open
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return listener_->port(); }
  // From its return on no new connections, and requests that still arrive are answered with 503. Takes a millisecond.
  void begin_drain();
  // Drains, waits until every request in hand is answered and all connections are closed, and ends. When that takes
  // longer than `timeout_ms`, closes what is left and says how much that was: kDeadlineExceeded.
  Status stop(int64_t timeout_ms);
  HttpCounts counts() const;

 private:
  HttpServer(const HttpOptions& options, std::shared_ptr<Handler> handler);

  const HttpOptions options_;
  const std::shared_ptr<Handler> handler_;
  const std::shared_ptr<BodyBudget> budget_, answer_budget_;
  std::unique_ptr<SlowLane> slow_lane_;
  std::vector<std::unique_ptr<HttpCounters>> counters_;  // of each reactor
  std::shared_ptr<net::TlsContext> tls_;                 // null: plain
  std::unique_ptr<net::Listener> listener_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

}  // namespace flywheel::http
