// SPDX-License-Identifier: Apache-2.0
// What the gRPC connections of one reactor share, and the deadlines of their calls. The server makes one for each
// reactor, which owns it; only its thread uses it.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/options.h"
#include "server/protocol/net/connection.h"

namespace flywheel::grpc {

class GrpcLoop : public net::Loop {
 public:
  GrpcLoop(const GrpcOptions& options, Service& service, std::shared_ptr<http::BodyBudget> budget,
           GrpcCounters& counters, http::SlowLane& slow_lane);
  ~GrpcLoop() override;

  std::unique_ptr<net::Connection> connect(int socket) override;
  void refuse(int socket) override;
  void on_alarm() override;
  void add_deadline(Call& call);
  void remove_deadline(const Call& call);

  const GrpcOptions& options;
  Service& service;
  const std::shared_ptr<http::BodyBudget> budget;
  GrpcCounters& counters;
  http::SlowLane& slow_lane;
  net::TlsContext* tls = nullptr;  // null: plain connections
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* session_options = nullptr;
  std::string spare_text;  // the memory of the last output that was sent whole

 private:
  std::map<std::pair<int64_t, const Call*>, Call*> deadlines_;
};

// nghttp2's callbacks for connections.
nghttp2_session_callbacks* make_session_callbacks();

}  // namespace flywheel::grpc
