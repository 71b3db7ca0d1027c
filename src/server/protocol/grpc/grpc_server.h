// SPDX-License-Identifier: Apache-2.0
// A listener that speaks gRPC for one service. Threads: `threads` reactors and as many for the slow lane; any thread
// may call.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/options.h"
#include "server/protocol/net/listener.h"

namespace flywheel::grpc {

class GrpcServer {
 public:
  // Listens and serves when it returns. Errors name the address and the port.
  static Result<std::unique_ptr<GrpcServer>> start(const GrpcOptions& options, std::shared_ptr<Service> service);
  ~GrpcServer();  // closes whatever is open
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  uint16_t port() const { return listener_->port(); }
  // From its return on no new connections; calls that still arrive are refused as unavailable, and clients are told to
  // go away. Takes a millisecond.
  void begin_drain();
  // Drains, waits until every call in hand is answered and all connections are closed, and ends. When that takes longer
  // than `timeout_ms`, closes what is left and says how much that was: kDeadlineExceeded.
  Status stop(int64_t timeout_ms);
  GrpcCounts counts() const;

 private:
  GrpcServer(const GrpcOptions& options, std::shared_ptr<Service> service);

  const GrpcOptions options_;
  const std::shared_ptr<Service> service_;
  const std::shared_ptr<http::BodyBudget> budget_;
  std::unique_ptr<http::SlowLane> slow_lane_;
  std::vector<std::unique_ptr<GrpcCounters>> counters_;  // of each reactor
  std::shared_ptr<net::TlsContext> tls_;                 // null: plain
  std::unique_ptr<net::Listener> listener_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

}  // namespace flywheel::grpc
