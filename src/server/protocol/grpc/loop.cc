// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/loop.h"

#include <sys/socket.h>

#include "server/protocol/grpc/connection.h"

namespace flywheel::grpc {

GrpcLoop::GrpcLoop(const GrpcOptions& grpc_options, Service& grpc_service, std::shared_ptr<http::BodyBudget> bytes,
                   GrpcCounters& counts, http::SlowLane& lane)
    : options(grpc_options),
      service(grpc_service),
      budget(std::move(bytes)),
      counters(counts),
      slow_lane(lane),
      callbacks(make_session_callbacks()) {
  if (nghttp2_option_new(&session_options) != 0) return;
  // Windows are opened as messages are taken, not as they arrive.
  nghttp2_option_set_no_auto_window_update(session_options, 1);
  // Clients send such metadata, and gRPC's own servers take it.
  nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(session_options, 1);
  // Connection::RateLimit has the same purpose and does not count calls that were answered.
  nghttp2_option_set_stream_reset_rate_limit(session_options, UINT32_MAX, UINT32_MAX);
  nghttp2_option_set_no_closed_streams(session_options, 1);
}

GrpcLoop::~GrpcLoop() {
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_option_del(session_options);
}

std::unique_ptr<net::Connection> GrpcLoop::connect(int socket) {
  GrpcCounters::add(counters.connections_accepted);
  return std::make_unique<Connection>(socket, *this);
}

void GrpcLoop::refuse(int socket) {
  GrpcCounters::add(counters.connections_refused);
  // Settings, as the protocol wants them first, and GOAWAY: no call was taken, so that each may be tried elsewhere.
  static constexpr unsigned char kFrames[] = {0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7,
                                              0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11};
  [[maybe_unused]] ssize_t sent = ::send(socket, kFrames, sizeof kFrames, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
}

void GrpcLoop::add_deadline(Call& call) {
  deadlines_.emplace(std::pair(call.head_.deadline_ns, static_cast<const Call*>(&call)), &call);
  alarm_ns = std::min(alarm_ns, call.head_.deadline_ns);
}

void GrpcLoop::remove_deadline(const Call& call) {
  if (call.head_.deadline_ns != 0) deadlines_.erase({call.head_.deadline_ns, &call});
}

void GrpcLoop::on_alarm() {
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now_ns) {
    Call& call = *deadlines_.begin()->second;
    call.connection_->on_deadline(call);  // which removes it
  }
  if (!deadlines_.empty()) alarm_ns = deadlines_.begin()->first.first;
}

}  // namespace flywheel::grpc
