// SPDX-License-Identifier: Apache-2.0
// One client's HTTP/2 connection: nghttp2 between its socket and its calls. A reactor owns it and calls it from its
// thread alone. Messages are received straight into their final place, and large tensors are sent from where they lie;
// idle connections hold no buffers but what HTTP/2 has to remember.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/loop.h"
#include "server/protocol/net/connection.h"
#include "server/protocol/net/transport.h"

namespace flywheel::grpc {

// So many at once, then so many a second.
class RateLimit {
 public:
  RateLimit(uint64_t burst, uint64_t per_second) : burst_(burst), per_second_(per_second), left_(burst) {}
  bool take(int64_t now_ns);

 private:
  const uint64_t burst_, per_second_;
  uint64_t left_;
  int64_t refilled_ns_ = 0;
};

class Connection : public net::Connection {
 public:
  Connection(int socket, GrpcLoop& loop);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void on_events(uint32_t events) override;
  void flush() override;
  void check_deadlines() override;
  void on_drain() override;
  bool is_idle() const override { return calls_.empty() && outgoing_.empty(); }
  int64_t idle_since_ns() const override { return received_ns_; }
  void close_now() override;
  bool closed() const override { return closed_; }

  // Of its calls.
  GrpcLoop& loop() { return loop_; }
  void begin_response(Call& call);
  void end_call(Call& call);  // its status is set
  void resume_sending(Call& call);
  void consume(Call& call, size_t bytes);
  void on_deadline(Call& call);
  void wants_flush();

 private:
  friend class Session;
  struct Outgoing {
    std::string text;
    http::Response::Blob blob;  // after the text
  };

  void read_socket();
  bool write_output();
  void after_output();
  void update_interest();
  void append_output(std::string_view bytes);
  void append_blob(http::Response::Blob blob);
  void protocol_error(std::string_view what);
  void check_calls();
  void begin_shutdown();
  void finish_shutdown();
  CallPtr make_call(int32_t stream_id);
  void open_call(Call& call);
  void end_of_requests(Call& call);
  void forget_call(Call& call);
  void receive_data(Call* call, int32_t stream_id, const uint8_t* data, size_t size);

  GrpcLoop& loop_;
  int socket_;
  net::Transport transport_;
  nghttp2_session* session_ = nullptr;
  bool closed_ = false;
  bool handshaken_ = false;  // the client's first settings have come
  bool lingering_ = false;   // all is said; waiting for the client's end
  bool in_flush_list_ = false;
  bool ping_sent_ = false;
  uint32_t interest_ = 0;
  int64_t opened_ns_ = 0;
  int64_t received_ns_ = 0;
  int64_t ping_ns_ = 0;
  int64_t linger_ns_ = 0;
  int64_t shutdown_ns_ = 0;  // when the client was told; 0: it was not
  bool shutdown_final_ = false;
  int64_t write_since_ns_ = 0;
  uint64_t write_progress_ = 0, write_period_bytes_ = 0;
  RateLimit resets_, controls_;
  std::vector<CallPtr> calls_;
  std::deque<Outgoing> outgoing_;
  size_t outgoing_offset_ = 0;  // sent of the first
  size_t outgoing_bytes_ = 0;
};

}  // namespace flywheel::grpc
