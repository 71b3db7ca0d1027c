// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "server/protocol/net/pieces.h"
#include "server/schedule/timeline.h"

namespace flywheel::grpc {
namespace {

constexpr int kMaxReadsPerEvent = 8;  // then other connections have their turn
constexpr size_t kMaxSpareBytes = 512 << 10;
constexpr uint32_t kMaxFrameBytes = 256 << 10;
constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

bool RateLimit::take(int64_t now_ns) {
  if (refilled_ns_ == 0) refilled_ns_ = now_ns;
  const uint64_t elapsed_ms = static_cast<uint64_t>(std::max<int64_t>(0, now_ns - refilled_ns_)) / kNsPerMs;
  const uint64_t more = elapsed_ms * per_second_ / 1000;
  if (more > 0) {
    left_ = std::min(burst_, left_ + more);
    refilled_ns_ = now_ns;
  }
  if (left_ == 0) return false;
  --left_;
  return true;
}

Connection::Connection(int socket, GrpcLoop& loop)
    : loop_(loop),
      socket_(socket),
      transport_(socket, loop.tls),
      opened_ns_(loop.now_ns),
      received_ns_(loop.now_ns),
      resets_(loop.options.reset_burst, loop.options.resets_per_s),
      controls_(loop.options.control_burst, loop.options.controls_per_s) {
  GrpcCounters::add(loop_.counters.connections_open);
  epoll_event event{};
  interest_ = event.events = EPOLLIN;
  event.data.ptr = static_cast<net::Connection*>(this);
  if (!transport_.is_usable() || loop_.callbacks == nullptr || loop_.session_options == nullptr ||
      nghttp2_session_server_new2(&session_, loop_.callbacks, this, loop_.session_options) != 0 ||
      ::epoll_ctl(loop_.epoll_fd, EPOLL_CTL_ADD, socket_, &event) != 0) {
    close_now();
    return;
  }
  const GrpcOptions& options = loop_.options;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options.max_calls},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(options.call_window_bytes)},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(options.max_header_bytes)}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, options.connection_window_bytes);
  // Not before the client has spoken: who connects only to look gets nothing. The client need not wait for it either.
}

Connection::~Connection() { close_now(); }

void Connection::close_now() {
  if (closed_) return;
  closed_ = true;
  while (!calls_.empty()) forget_call(*calls_.back());
  outgoing_.clear();
  outgoing_bytes_ = 0;
  nghttp2_session_del(session_);
  session_ = nullptr;
  transport_.say_goodbye();
  loop_.close_socket(socket_);
  GrpcCounters::subtract(loop_.counters.connections_open);
  loop_.to_destroy.push_back(this);
}

void Connection::wants_flush() {
  if (in_flush_list_ || closed_) return;
  in_flush_list_ = true;
  loop_.to_flush.push_back(this);
}

void Connection::update_interest() {
  if (closed_) return;
  const uint32_t wanted = EPOLLIN | (outgoing_.empty() && !transport_.wants_write() ? 0u : uint32_t{EPOLLOUT});
  if (wanted == interest_) return;
  epoll_event event{};
  event.events = interest_ = wanted;
  event.data.ptr = static_cast<net::Connection*>(this);
  if (::epoll_ctl(loop_.epoll_fd, EPOLL_CTL_MOD, socket_, &event) != 0) close_now();
}

void Connection::on_events(uint32_t events) {
  if (closed_) return;
  if ((events & EPOLLERR) != 0) return close_now();
  const bool waits_to_receive = transport_.wants_write() && (events & EPOLLOUT) != 0;
  if ((events & EPOLLOUT) != 0) flush();
  if (!closed_ && ((events & (EPOLLIN | EPOLLHUP)) != 0 || waits_to_receive)) read_socket();
}

void Connection::read_socket() {
  std::string& scratch = loop_.scratch;
  for (int round = 0; !closed_ && (round < kMaxReadsPerEvent || transport_.has_pending()); ++round) {
    iovec room[] = {{scratch.data(), scratch.size()}};
    const ssize_t got = transport_.receive(room);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        update_interest();
        break;
      }
      return close_now();
    }
    if (got == 0) return close_now();
    GrpcCounters::add(loop_.counters.received_bytes, static_cast<uint64_t>(got));
    received_ns_ = loop_.now_ns;
    if (lingering_) continue;
    const ssize_t taken =
        nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(scratch.data()), static_cast<size_t>(got));
    if (taken < 0) {
      GrpcCounters::add(loop_.counters.protocol_errors);
      log(LogLevel::kVerbose, "{}: a client's connection is closed: {}", loop_.options.name,
          nghttp2_strerror(static_cast<int>(taken)));
      nghttp2_session_terminate_session(session_, NGHTTP2_PROTOCOL_ERROR);
      flush();
      return close_now();
    }
    if (static_cast<size_t>(got) < scratch.size() && !transport_.has_pending()) break;
  }
  if (!closed_ && !lingering_) wants_flush();
}

void Connection::protocol_error(std::string_view what) {
  GrpcCounters::add(loop_.counters.protocol_errors);
  log(LogLevel::kVerbose, "{}: a client's connection is closed: {}", loop_.options.name, what);
  nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

// -----------------------------------------------------------------------------------------------------------------------
// Calls.

CallPtr Connection::make_call(int32_t stream_id) {
  auto call = std::make_shared<Call>(loop_, this, stream_id);
  call->index_ = calls_.size();
  calls_.push_back(call);
  GrpcCounters::add(loop_.counters.calls);
  GrpcCounters::add(loop_.counters.in_flight);
  return call;
}

void Connection::open_call(Call& call) {
  call.head_.received_ns = loop_.now_ns;
  if (!call.refusal_ && (!call.is_grpc_ || !call.is_post_)) {
    // No gRPC client: an answer that HTTP understands.
    GrpcCounters::subtract(loop_.counters.in_flight);
    GrpcCounters::add(loop_.counters.calls_by_status[static_cast<size_t>(StatusCode::kInternal)]);
    call.responded_ = call.finished_ = true;
    call.head_.deadline_ns = 0;
    constexpr std::string_view kStatus = ":status", kMethod = "405", kType = "415";
    const std::string_view value = call.is_post_ ? kType : kMethod;
    const nghttp2_nv field = {reinterpret_cast<uint8_t*>(const_cast<char*>(kStatus.data())),
                              reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), kStatus.size(), value.size(),
                              NGHTTP2_NV_FLAG_NONE};
    nghttp2_submit_response(session_, call.stream_id_, &field, 1, nullptr);
    return;
  }
  if (call.refusal_) {
    call.head_.deadline_ns = 0;
    return call.finish(*std::exchange(call.refusal_, std::nullopt));
  }
  if (loop_.draining) {
    call.head_.deadline_ns = 0;
    return call.finish(
        {StatusCode::kUnavailable, "GRPC server is shutting down and has stopped accepting new requests."});
  }
  if (call.head_.deadline_ns != 0) loop_.add_deadline(call);
  call.handler_ = loop_.service.open(call);
  if (call.ended()) return;
  if (call.handler_ == nullptr) {
    return call.finish({StatusCode::kUnimplemented, "there is no method '" + call.head_.path + "'"});
  }
  if (call.half_closed_) call.pump();
}

void Connection::end_of_requests(Call& call) {
  if (call.ended()) return;
  if (call.receiving_ || call.prefix_size_ > 0) {
    call.abandon();
    return call.finish({StatusCode::kInternal, "the request ends within a message"});
  }
  call.pump();
}

void Connection::receive_data(Call* call, int32_t stream_id, const uint8_t* data, size_t size) {
  nghttp2_session_consume_connection(session_, size);
  if (call == nullptr || call->ended()) {
    nghttp2_session_consume_stream(session_, stream_id, size);
    return;
  }
  call->unconsumed_bytes_ += size;
  const size_t before = call->received_.size();
  const GrpcStatus status = call->receive({reinterpret_cast<const std::byte*>(data), size}, loop_.now_ns);
  GrpcCounters::add(loop_.counters.messages_received, call->received_.size() - before);
  if (status.code != StatusCode::kOk) {
    call->abandon();
    call->finish(status);
  }
  call->pump();
}

void Connection::consume(Call& call, size_t bytes) {
  nghttp2_session_consume_stream(session_, call.stream_id_, bytes);
  wants_flush();
}

void Connection::forget_call(Call& call) {
  const CallPtr keep = calls_[call.index_];
  std::swap(calls_[call.index_], calls_.back());
  calls_[call.index_]->index_ = call.index_;
  calls_.pop_back();
  if (!call.finished_) {
    GrpcCounters::add(loop_.counters.calls_abandoned);
    GrpcCounters::subtract(loop_.counters.in_flight);
    loop_.remove_deadline(call);
    call.abandon();
  }
  call.connection_ = nullptr;
  call.received_.clear();
  call.drop_outgoing();
}

void Connection::on_deadline(Call& call) {
  call.abandon();
  call.finish({StatusCode::kDeadlineExceeded, "Deadline Exceeded"});
}

// -----------------------------------------------------------------------------------------------------------------------
// Output.

void Connection::append_output(std::string_view bytes) {
  if (outgoing_.empty() || outgoing_.back().blob.owner != nullptr) {
    outgoing_.emplace_back();
    outgoing_.back().text = std::move(loop_.spare_text);
    outgoing_.back().text.clear();
    loop_.spare_text = std::string();
  }
  outgoing_.back().text += bytes;
  outgoing_bytes_ += bytes.size();
}

void Connection::append_blob(http::Response::Blob blob) {
  // What nobody owns has to be copied.
  if (blob.owner == nullptr) {
    return append_output({reinterpret_cast<const char*>(blob.bytes.data()), blob.bytes.size()});
  }
  if (outgoing_.empty() || outgoing_.back().blob.owner != nullptr) outgoing_.emplace_back();
  outgoing_bytes_ += blob.bytes.size();
  outgoing_.back().blob = std::move(blob);
}

void Connection::flush() {
  in_flush_list_ = false;
  if (!closed_ && !transport_.is_secured()) return update_interest();  // settings wait for the end of the handshake
  while (!closed_ && !lingering_) {
    const size_t before = outgoing_bytes_;
    if (nghttp2_session_send(session_) != 0) return close_now();
    const bool more = outgoing_bytes_ != before;
    if (!write_output()) return;
    if (!outgoing_.empty() || !more) break;  // the socket is full, or nothing is left to say
  }
  if (closed_) return;
  if (outgoing_.empty()) after_output();
  update_interest();
}

bool Connection::write_output() {
  while (!outgoing_.empty()) {
    net::Pieces pieces(outgoing_offset_);
    for (const Outgoing& out : outgoing_) {
      pieces.add(out.text.data(), out.text.size());
      pieces.add(out.blob.bytes.data(), out.blob.bytes.size());
      if (pieces.full()) break;
    }
    const ssize_t sent = transport_.send(pieces);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (write_since_ns_ == 0) write_since_ns_ = loop_.now_ns;
        return true;
      }
      close_now();
      return false;
    }
    GrpcCounters::add(loop_.counters.sent_bytes, static_cast<uint64_t>(sent));
    if (write_since_ns_ != 0) write_progress_ += static_cast<uint64_t>(sent);
    outgoing_bytes_ -= static_cast<size_t>(sent);
    outgoing_offset_ += static_cast<size_t>(sent);
    while (!outgoing_.empty()) {
      Outgoing& front = outgoing_.front();
      const size_t total = front.text.size() + front.blob.bytes.size();
      if (outgoing_offset_ < total) break;
      outgoing_offset_ -= total;
      if (front.text.capacity() > loop_.spare_text.capacity() && front.text.capacity() <= kMaxSpareBytes) {
        loop_.spare_text = std::move(front.text);
      }
      outgoing_.pop_front();
    }
  }
  write_since_ns_ = 0;
  write_progress_ = write_period_bytes_ = 0;
  return true;
}

void Connection::after_output() {
  if (lingering_) return;
  const bool said_all = shutdown_final_ && calls_.empty() && nghttp2_session_want_write(session_) == 0;
  if (!said_all && (nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0)) return;
  // Closing while the client still sends would reset the connection and could destroy the last answers on their way.
  transport_.end_sending();
  lingering_ = true;
  linger_ns_ = loop_.now_ns;
}

// -----------------------------------------------------------------------------------------------------------------------
// Time.

void Connection::begin_shutdown() {
  if (shutdown_ns_ != 0 || closed_) return;
  shutdown_ns_ = loop_.now_ns;
  nghttp2_submit_shutdown_notice(session_);
  wants_flush();
}

void Connection::finish_shutdown() {
  if (shutdown_final_) return;
  shutdown_final_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                        NGHTTP2_NO_ERROR, nullptr, 0);
  wants_flush();
}

void Connection::on_drain() {
  if (closed_ || lingering_) return;
  if (!handshaken_) return close_now();
  begin_shutdown();
  const std::vector<CallPtr> calls = calls_;
  for (const CallPtr& call : calls) {
    if (!call->ended() && call->handler_ != nullptr) call->handler_->on_drain();
  }
}

void Connection::check_deadlines() {
  if (closed_) return;
  const GrpcOptions& options = loop_.options;
  const int64_t now = loop_.now_ns;
  auto is_past = [now](int64_t since_ns, int64_t limit_ms) { return now - since_ns > limit_ms * kNsPerMs; };
  if (lingering_) {
    if (is_past(linger_ns_, loop_.draining ? options.drain_notice_ms : options.linger_timeout_ms)) close_now();
    return;
  }
  if (!handshaken_ && is_past(opened_ns_, options.handshake_timeout_ms)) {
    GrpcCounters::add(loop_.counters.timeouts);
    return close_now();
  }
  if (write_since_ns_ != 0 && is_past(write_since_ns_, options.write_timeout_ms)) {
    const uint64_t wanted = static_cast<uint64_t>(options.write_timeout_ms * options.min_bytes_per_s / 1000);
    if (write_progress_ - write_period_bytes_ < wanted) {
      GrpcCounters::add(loop_.counters.timeouts);
      return close_now();
    }
    write_since_ns_ = now;
    write_period_bytes_ = write_progress_;
  }
  if (ping_sent_) {
    if (is_past(ping_ns_, options.keepalive_timeout_ms)) {
      if (received_ns_ < ping_ns_) {
        GrpcCounters::add(loop_.counters.timeouts);
        return close_now();
      }
      ping_sent_ = false;
    }
  } else if (is_past(received_ns_, options.keepalive_time_ms) && (options.keepalive_without_calls || !calls_.empty())) {
    ping_sent_ = true;
    ping_ns_ = now;
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
    wants_flush();
  }
  if (options.max_connection_age_ms > 0 && is_past(opened_ns_, options.max_connection_age_ms)) {
    begin_shutdown();
    const int64_t grace_ms = options.max_connection_age_grace_ms;
    if (grace_ms > 0 && is_past(opened_ns_, options.max_connection_age_ms + grace_ms)) return close_now();
  }
  if (shutdown_ns_ != 0 && is_past(shutdown_ns_, options.drain_notice_ms)) finish_shutdown();
  check_calls();
}

void Connection::check_calls() {
  const GrpcOptions& options = loop_.options;
  const int64_t now = loop_.now_ns;
  const uint64_t wanted = static_cast<uint64_t>(options.message_timeout_ms * options.min_bytes_per_s / 1000);
  const std::vector<CallPtr> calls = calls_;
  for (const CallPtr& call : calls) {
    const bool stalled = call->unsent_bytes_ > 0 && outgoing_.empty() &&
                         now - call->unsent_since_ns_ > options.stalled_call_timeout_ms * kNsPerMs;
    if (stalled) {
      GrpcCounters::add(loop_.counters.timeouts);
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call->stream_id_, NGHTTP2_CANCEL);
      wants_flush();
      continue;
    }
    if (call->ended()) continue;
    if (call->receiving_ && now - call->message_since_ns_ > options.message_timeout_ms * kNsPerMs) {
      if (call->message_.body.size() - call->message_period_bytes_ < wanted && call->unconsumed_bytes_ == 0) {
        GrpcCounters::add(loop_.counters.timeouts);
        call->abandon();
        call->finish({StatusCode::kDeadlineExceeded, "the message did not arrive in time"});
        continue;
      }
      call->message_since_ns_ = now;
      call->message_period_bytes_ = call->message_.body.size();
    }
    if (call->handler_ != nullptr) call->handler_->on_tick();
  }
}

}  // namespace flywheel::grpc
