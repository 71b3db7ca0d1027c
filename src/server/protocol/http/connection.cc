// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/protocol/http/slow_lane.h"
#include "server/protocol/net/pieces.h"
#include "server/schedule/timeline.h"

namespace flywheel::http {
namespace {

constexpr int kMaxReadsPerEvent = 8;  // then other connections have their turn
constexpr size_t kFirstChunkedRoom = 16 << 10;
constexpr size_t kInlineBodyBytes = 16 << 10;  // bodies up to this travel in the same piece as their head
constexpr size_t kInlineBlobBytes = 4 << 10;   // copying these frees a whole batch's outputs early
constexpr size_t kMaxMergedBytes = 64 << 10;
constexpr size_t kFreeAnswerBytes = 16 << 10;  // answers up to this take nothing from the budget
constexpr size_t kMaxUnsentBytes = 1 << 20;    // of a connection; then it is not read until these are sent
constexpr size_t kMaxUnsentStreamBytes = 64 << 20;
constexpr uint64_t kMaxDiscardedBytes = 1 << 30;
constexpr int64_t kProbeIntervalNs = 1'000'000'000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr std::string_view kTooManyConnections =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    "Content-Length: 61\r\n\r\n{\"error\":\"too many connections: close idle ones and retry\"}\r\n";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

std::unique_ptr<net::Connection> ReactorContext::connect(int socket) {
  HttpCounters::add(counters->connections_accepted);
  return std::make_unique<Connection>(socket, *this);
}

void ReactorContext::refuse(int socket) {
  HttpCounters::add(counters->connections_refused);
  if (tls != nullptr) return;
  [[maybe_unused]] ssize_t sent =
      ::send(socket, kTooManyConnections.data(), kTooManyConnections.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
}

size_t Connection::Outgoing::total_bytes() const {
  size_t total = text.size() + body.size();
  for (const Response::Blob& blob : blobs) total += blob.bytes.size();
  return total;
}

Connection::Connection(int socket, ReactorContext& context)
    : context_(context), socket_(socket), transport_(socket, context.tls), since_ns_(context.now_ns) {
  epoll_event event{};
  interest_ = event.events = EPOLLIN;
  event.data.ptr = static_cast<net::Connection*>(this);
  HttpCounters::add(context_.counters->connections_open);
  if (!transport_.is_usable() || epoll_ctl(context_.epoll_fd, EPOLL_CTL_ADD, socket_, &event) != 0) close_now();
}

Connection::~Connection() { close_now(); }

void Connection::close_now() {
  if (closed_) return;
  closed_ = true;
  if (!queue_.empty()) HttpCounters::add(context_.counters->disconnects);
  for (const ExchangePtr& exchange : queue_) {
    exchange->connection_ = nullptr;
    if (!exchange->done_) exchange->abandon();
  }
  HttpCounters::subtract(context_.counters->in_flight, queue_.size());
  queue_.clear();
  outgoing_.clear();
  incoming_.reset();
  transport_.say_goodbye();
  context_.close_socket(socket_);
  HttpCounters::subtract(context_.counters->connections_open);
  context_.to_destroy.push_back(this);
}

bool Connection::is_idle() const {
  return state_ == State::kHead && pending_.empty() && !unsent_or_unanswered() && !end_of_input_;
}

void Connection::on_drain() {
  if (is_idle() || lingering_) since_ns_ = context_.now_ns;
}

void Connection::update_interest() {
  if (closed_) return;
  uint32_t wanted = 0;
  if (!paused_ && !end_of_input_) wanted |= EPOLLIN;
  if (!outgoing_.empty() || transport_.wants_write()) wanted |= EPOLLOUT;
  if (wanted == interest_) return;
  epoll_event event{};
  event.events = interest_ = wanted;
  event.data.ptr = static_cast<net::Connection*>(this);
  if (epoll_ctl(context_.epoll_fd, EPOLL_CTL_MOD, socket_, &event) != 0) close_now();
}

void Connection::on_events(uint32_t events) {
  if (closed_) return;
  if ((events & EPOLLERR) != 0) return close_now();
  if ((events & EPOLLOUT) != 0 && transport_.wants_write()) read_socket();
  if (!closed_ && (events & EPOLLOUT) != 0) flush();
  if (closed_ || (events & (EPOLLIN | EPOLLHUP)) == 0) return;
  if ((interest_ & EPOLLIN) != 0) {
    read_socket();
  } else if ((events & EPOLLHUP) != 0) {
    close_now();
  }
}

void Connection::read_socket() {
  std::string& scratch = context_.scratch;
  for (int round = 0; !closed_ && !paused_ && !end_of_input_; ++round) {
    if (round >= kMaxReadsPerEvent && !transport_.has_pending()) return;
    // A body's remaining bytes go to their place; what follows them, or anything else, to the scratch buffer, after
    // the part of a head that earlier reads left.
    const std::span<std::byte> room = state_ == State::kBody ? incoming_->body_.room() : std::span<std::byte>();
    const size_t prefix = room.empty() ? pending_.size() : 0;
    if (prefix > 0) std::memcpy(scratch.data(), pending_.data(), prefix);
    iovec pieces[2] = {{room.data(), room.size()}, {scratch.data() + prefix, scratch.size() - prefix}};
    const ssize_t got = transport_.receive(std::span(pieces).subspan(room.empty() ? 1 : 0));
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return update_interest();
      return close_now();
    }
    if (got == 0) return on_end_of_input();
    HttpCounters::add(context_.counters->received_bytes, static_cast<uint64_t>(got));
    const size_t in_body = std::min(static_cast<size_t>(got), room.size());
    const size_t in_scratch = static_cast<size_t>(got) - in_body;
    if (in_body > 0) {
      wants_continue_ = false;
      if (!incoming_->body_.commit(in_body)) {
        answer_no_memory();
      } else if (in_body == room.size()) {
        dispatch();
      }
    }
    if (pending_.capacity() > 4096) {
      pending_ = std::string();
    } else {
      pending_.clear();
    }
    if (prefix + in_scratch > 0) process({scratch.data(), prefix + in_scratch});
    // The socket is empty.
    if (static_cast<size_t>(got) < room.size() + pieces[1].iov_len && !transport_.has_pending()) return;
  }
}

void Connection::process(std::string_view bytes) {
  while (!bytes.empty() && !closed_) {
    switch (state_) {
      case State::kDiscard:
        discarded_bytes_ += bytes.size();
        if (discarded_bytes_ > kMaxDiscardedBytes) return close_now();
        bytes = {};
        break;
      case State::kBody: bytes = take_fixed_body(bytes); break;
      case State::kChunked: bytes = take_chunked_body(bytes); break;
      case State::kHead: {
        if (has_too_much_in_hand(1)) {
          paused_ = true;
          pending_.assign(bytes);
          return update_interest();
        }
        if (const size_t newlines = count_leading_newlines(bytes); newlines > 0) {
          bytes.remove_prefix(newlines);
          head_scanned_ = 0;
          break;
        }
        const bool is_new = head_scanned_ == 0;
        const size_t end = find_head_end(bytes, head_scanned_);
        if (end == 0) {
          if (is_new) since_ns_ = context_.now_ns;
          if (ParseError error = check_partial_head(bytes, context_.options->parser)) {
            HttpCounters::add(context_.counters->parse_errors);
            return answer_and_close(error_response(error.status, error.message));
          }
          pending_.assign(bytes);
          return;
        }
        begin_request(bytes.substr(0, end));
        bytes.remove_prefix(end);
        break;
      }
    }
  }
  if (wants_continue_ && !unsent_or_unanswered()) send_interim_continue();
}

void Connection::begin_request(std::string_view head) {
  head_scanned_ = 0;
  since_ns_ = context_.now_ns;
  auto exchange = std::make_shared<Exchange>(context_.inbox, std::string(head));
  exchange->connection_ = this;
  exchange->began_ns_ = context_.now_ns;
  if (ParseError error = parse_head(exchange->head_text_, context_.options->parser, exchange->head_)) {
    HttpCounters::add(context_.counters->parse_errors);
    return answer_and_close(error_response(error.status, error.message));
  }
  incoming_ = std::move(exchange);
  if (!incoming_->head_.has_body()) return dispatch();
  const RequestHead& request = incoming_->head_;
  const BodyPlan plan = context_.handler->plan_body(request);
  if (request.content_length.value_or(0) > plan.limit_bytes) {
    return answer_and_close(context_.handler->body_too_large(request, *request.content_length));
  }
  body_limit_ = plan.limit_bytes;
  read_period_bytes_ = 0;
  if (!prepare_body(plan)) return answer_no_memory();
  state_ = request.chunked ? State::kChunked : State::kBody;
  chunks_ = ChunkedDecoder();
  wants_continue_ = request.expects_continue;
}

bool Connection::prepare_body(const BodyPlan& plan) {
  const std::optional<uint64_t> length = incoming_->head_.content_length;
  return incoming_->body_.reserve(length ? static_cast<size_t>(*length) : kFirstChunkedRoom, plan.aligned_at,
                                  context_.budget);
}

std::string_view Connection::take_fixed_body(std::string_view bytes) {
  wants_continue_ = false;
  std::span<std::byte> room = incoming_->body_.room();
  const size_t count = std::min(room.size(), bytes.size());
  std::memcpy(room.data(), bytes.data(), count);
  if (!incoming_->body_.commit(count)) {
    answer_no_memory();
  } else if (count == room.size()) {
    dispatch();
  }
  return bytes.substr(count);
}

std::string_view Connection::take_chunked_body(std::string_view bytes) {
  wants_continue_ = false;
  const ChunkedDecoder::Step step = chunks_.next(bytes);
  bytes.remove_prefix(step.consumed);
  Body& body = incoming_->body_;
  if (step.error) {
    HttpCounters::add(context_.counters->parse_errors);
    answer_and_close(error_response(step.error.status, step.error.message));
  } else if (chunks_.chunk_count() > context_.options->max_chunks) {
    answer_and_close(error_response(400, "Chunked request body exceeds maximum of " +
                                             std::to_string(context_.options->max_chunks) +
                                             " non-empty chunks. Send fewer or larger HTTP chunks."));
  } else if (step.data.size() > body_limit_ - body.size()) {
    answer_and_close(context_.handler->body_too_large(incoming_->head_, body.size() + step.data.size()));
  } else if (!step.data.empty() && !body.append(step.data)) {
    answer_no_memory();
  } else if (step.done) {
    dispatch();
  }
  return bytes;
}

void Connection::dispatch() {
  ExchangePtr exchange = std::move(incoming_);
  exchange->received_ns_ = schedule::monotonic_now_ns();
  queue_.push_back(exchange);
  state_ = State::kHead;
  wants_continue_ = false;
  HttpCounters::add(context_.counters->requests);
  HttpCounters::add(context_.counters->in_flight);
  if (!exchange->head_.keep_alive) {
    state_ = State::kDiscard;
  }
  if (context_.draining) {
    exchange->respond(error_response(503, "Server exiting"));
  } else if (context_.handler->is_slow(*exchange)) {
    context_.slow_lane->post([handler = context_.handler, exchange] { handler->handle(exchange); });
  } else {
    context_.handler->handle(exchange);
  }
}

void Connection::answer_and_close(Response response) {
  auto exchange = std::make_shared<Exchange>(context_.inbox, std::string());
  exchange->connection_ = this;
  exchange->head_.keep_alive = false;
  exchange->response_ = std::move(response);
  exchange->rendered_ = true;
  if (incoming_ != nullptr) exchange->head_.method = incoming_->head_.method;
  incoming_.reset();
  queue_.push_back(exchange);
  HttpCounters::add(context_.counters->requests);
  HttpCounters::add(context_.counters->in_flight);
  wants_continue_ = false;
  state_ = State::kDiscard;
  on_finished(exchange);
}

void Connection::answer_no_memory() {
  answer_and_close(error_response(503,
                                  "no memory for the request's body: the bodies of all requests in hand fill their "
                                  "budget; retry later"));
}

void Connection::on_finished(const ExchangePtr& exchange) {
  exchange->done_ = true;
  // Clients that do not read what they asked for must not fill the memory.
  const size_t bytes = exchange->response_.content_bytes();
  if (bytes > kFreeAnswerBytes && !exchange->answer_share_.take(context_.answer_budget, bytes)) {
    exchange->response_ = error_response(
        503, "no memory for the answer: answers that clients have not read fill their budget; retry later");
  }
  on_progress();
}

void Connection::on_progress() {
  if (in_flush_list_) return;
  in_flush_list_ = true;
  context_.to_flush.push_back(this);
}

void Connection::on_end_of_input() {
  end_of_input_ = true;
  if (incoming_ != nullptr || !pending_.empty()) HttpCounters::add(context_.counters->disconnects);
  incoming_.reset();
  pending_.clear();
  wants_continue_ = false;
  state_ = State::kDiscard;
  since_ns_ = context_.now_ns;
  if (!unsent_or_unanswered()) return close_now();
  if (outgoing_.empty()) send_interim_continue();
  update_interest();
}

// Also tells a client that only ended its half of the connection, and still wants its answer, from one that is gone:
// the latter's system answers with a reset. Clients must accept this interim answer at any time.
void Connection::send_interim_continue() {
  if (!queue_.empty() && queue_.front()->head_.minor_version == 0) return;
  wants_continue_ = false;
  const ssize_t sent = transport_.send(kContinue);
  if (sent != static_cast<ssize_t>(kContinue.size())) close_now();
}

void Connection::flush() {
  in_flush_list_ = false;
  while (!closed_ && !closing_ && !queue_.empty()) {
    const ExchangePtr exchange = queue_.front();
    if (!exchange->done_ && !queue_stream(*exchange)) break;
    queue_.pop_front();
    exchange->connection_ = nullptr;
    HttpCounters::subtract(context_.counters->in_flight);
    const bool last = is_last(*exchange);
    if (exchange->done_) queue_response(*exchange, last);
    if (last) finish_after_last();
  }
  if (closed_ || !write_output()) return;
  if (outgoing_.empty()) after_output_drained();
  if (!closed_ && paused_ && !has_too_much_in_hand(2)) resume_reading();
  update_interest();
}

bool Connection::is_last(const Exchange& exchange) const {
  const bool nothing_follows = queue_.empty() && incoming_ == nullptr && pending_.empty();
  return !exchange.head_.keep_alive || exchange.response_.close ||
         (nothing_follows && (context_.draining || end_of_input_));
}

Connection::Outgoing& Connection::outgoing_for_text() {
  const bool merge = !outgoing_.empty() && outgoing_.back().body.empty() && outgoing_.back().blobs.empty() &&
                     outgoing_.back().text.size() < kMaxMergedBytes;
  if (!merge) outgoing_.emplace_back();
  return outgoing_.back();
}

void Connection::count_response(int status) {
  HttpCounters& counters = *context_.counters;
  HttpCounters::add(status >= 500   ? counters.responses_5xx
                    : status >= 400 ? counters.responses_4xx
                                    : counters.responses_2xx);
}

bool Connection::queue_stream(Exchange& exchange) {
  std::string pieces;
  std::shared_ptr<const void> held;
  bool ended = false;
  {
    std::lock_guard lock(exchange.stream_mutex_);
    if (!exchange.streaming_) return false;
    pieces.swap(exchange.stream_pieces_);
    ended = exchange.stream_ended_;
    if (ended) held = std::move(exchange.response_.held_until_sent);
  }
  if (pieces.empty() && !ended && exchange.stream_head_queued_) return false;
  const bool chunked = exchange.head_.minor_version >= 1;
  Outgoing& out = outgoing_for_text();
  const size_t bytes_before = out.total_bytes();
  if (!exchange.stream_head_queued_) {
    exchange.stream_head_queued_ = true;
    Response& response = exchange.response_;
    if (!chunked) response.close = true;
    count_response(response.status);
    append_head(out.text, response, !exchange.head_.keep_alive || response.close, exchange.head_.minor_version,
                chunked ? Framing::kChunked : Framing::kUntilClose);
  }
  if (exchange.head_.method != Method::kHead) {
    if (!chunked) {
      out.text += pieces;
    } else {
      if (!pieces.empty()) append_chunk(out.text, pieces);
      if (ended) append_chunk(out.text, {});
    }
  }
  if (held != nullptr) out.held.push_back(std::move(held));
  unsent_bytes_ += out.total_bytes() - bytes_before;
  if (!ended && unsent_bytes_ > kMaxUnsentStreamBytes) {
    HttpCounters::add(context_.counters->timeouts);
    close_now();
  }
  return ended;
}

void Connection::queue_response(Exchange& exchange, bool last) {
  Response& response = exchange.response_;
  count_response(response.status);
  Outgoing& out = outgoing_for_text();
  const size_t bytes_before = out.total_bytes();
  out.share.add(std::move(exchange.answer_share_));
  if (response.held_until_sent != nullptr) out.held.push_back(std::move(response.held_until_sent));
  append_head(out.text, response, last, exchange.head_.minor_version);
  if (exchange.head_.method != Method::kHead) {
    if (response.body.size() <= kInlineBodyBytes) {
      out.text += response.body;
    } else {
      out.body = std::move(response.body);
    }
    for (Response::Blob& blob : response.blobs) {
      if (blob.bytes.empty()) continue;
      if (blob.bytes.size() <= kInlineBlobBytes && out.body.empty() && out.blobs.empty()) {
        out.text.append(reinterpret_cast<const char*>(blob.bytes.data()), blob.bytes.size());
      } else {
        out.blobs.push_back(std::move(blob));
      }
    }
  }
  unsent_bytes_ += out.total_bytes() - bytes_before;
}

void Connection::finish_after_last() {
  closing_ = true;
  // What was pipelined behind the last answer is dropped: the client has to send it again on another connection.
  for (const ExchangePtr& dropped : queue_) {
    dropped->connection_ = nullptr;
    if (!dropped->done_) dropped->abandon();
  }
  HttpCounters::subtract(context_.counters->in_flight, queue_.size());
  queue_.clear();
  incoming_.reset();
  pending_.clear();
  state_ = State::kDiscard;
}

bool Connection::write_output() {
  while (!outgoing_.empty()) {
    net::Pieces pieces(outgoing_offset_);
    for (const Outgoing& out : outgoing_) {
      pieces.add(out.text.data(), out.text.size());
      pieces.add(out.body.data(), out.body.size());
      for (const Response::Blob& blob : out.blobs) pieces.add(blob.bytes.data(), blob.bytes.size());
      if (pieces.full()) break;
    }
    const ssize_t sent = transport_.send(pieces);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (write_since_ns_ == 0) write_since_ns_ = context_.now_ns;
        return true;
      }
      HttpCounters::add(context_.counters->disconnects);
      close_now();
      return false;
    }
    HttpCounters::add(context_.counters->sent_bytes, static_cast<uint64_t>(sent));
    if (write_since_ns_ != 0) write_progress_ += static_cast<uint64_t>(sent);
    outgoing_offset_ += static_cast<size_t>(sent);
    unsent_bytes_ -= static_cast<size_t>(sent);
    while (!outgoing_.empty()) {
      const size_t total = outgoing_.front().total_bytes();
      if (outgoing_offset_ < total) break;
      outgoing_offset_ -= total;
      outgoing_.pop_front();
    }
  }
  write_since_ns_ = 0;
  write_progress_ = write_period_bytes_ = 0;
  return true;
}

void Connection::after_output_drained() {
  if (closing_) {
    if (end_of_input_) return close_now();
    // Closing while the client still sends would reset the connection and could destroy the answer on its way.
    transport_.end_sending();
    lingering_ = true;
    since_ns_ = context_.now_ns;
    discarded_bytes_ = read_period_bytes_ = 0;
    return;
  }
  if (!queue_.empty()) return;
  if (end_of_input_) return close_now();
  if (wants_continue_) return send_interim_continue();
  if (state_ == State::kHead && pending_.empty()) since_ns_ = context_.now_ns;
}

// `divisor` 1: whether to stop reading; 2: whether not to begin again yet.
bool Connection::has_too_much_in_hand(size_t divisor) const {
  const size_t limit = static_cast<size_t>(context_.options->max_pipelined) / divisor;
  const size_t count = queue_.size() + outgoing_.size();
  return (divisor == 1 ? count >= limit : count > limit) || unsent_bytes_ > kMaxUnsentBytes / divisor;
}

void Connection::resume_reading() {
  paused_ = false;
  const std::string bytes = std::move(pending_);
  pending_.clear();
  process(bytes);
  if (!closed_ && !paused_ && transport_.has_pending()) read_socket();
}

void Connection::check_deadlines() {
  if (closed_) return;
  const HttpOptions& options = *context_.options;
  const int64_t now = context_.now_ns;
  // Within each period of the given length the lowest accepted rate has to be met, or the client is too slow.
  auto too_slow = [&](int64_t& period_since_ns, int64_t period_ms, uint64_t& period_bytes, uint64_t bytes) {
    const int64_t elapsed = now - period_since_ns;
    if (elapsed <= period_ms * kNsPerMs) return false;
    const uint64_t wanted = static_cast<uint64_t>(period_ms) * static_cast<uint64_t>(options.min_bytes_per_s) / 1000;
    if (bytes - period_bytes < wanted) return true;
    period_since_ns = now;
    period_bytes = bytes;
    return false;
  };
  if (write_since_ns_ != 0 &&
      too_slow(write_since_ns_, options.write_timeout_ms, write_period_bytes_, write_progress_)) {
    HttpCounters::add(context_.counters->timeouts);
    return close_now();
  }
  const int64_t elapsed = now - since_ns_;
  if (lingering_) {
    const int64_t limit_ms = context_.draining ? options.drain_idle_timeout_ms : options.linger_timeout_ms;
    if (too_slow(since_ns_, limit_ms, read_period_bytes_, discarded_bytes_)) close_now();
    return;
  }
  if (end_of_input_) {
    if (!queue_.empty() && outgoing_.empty() && elapsed > kProbeIntervalNs) {
      since_ns_ = now;
      send_interim_continue();
    }
    return;
  }
  if (state_ == State::kBody || state_ == State::kChunked) {
    if (!too_slow(since_ns_, options.body_timeout_ms, read_period_bytes_, incoming_->body_.size())) return;
    HttpCounters::add(context_.counters->timeouts);
    return answer_and_close(error_response(408, "the request's body did not arrive in time"));
  }
  if (!transport_.is_secured() && elapsed > options.head_timeout_ms * kNsPerMs) {
    HttpCounters::add(context_.counters->timeouts);
    return close_now();
  }
  if (state_ != State::kHead || paused_) return;
  if (!pending_.empty()) {
    if (elapsed <= options.head_timeout_ms * kNsPerMs) return;
    HttpCounters::add(context_.counters->timeouts);
    return answer_and_close(error_response(408, "the request's head did not arrive in time"));
  }
  if (unsent_or_unanswered()) return;
  const int64_t idle_ms = context_.draining ? options.drain_idle_timeout_ms : options.idle_timeout_ms;
  if (elapsed > idle_ms * kNsPerMs) close_now();
}

}  // namespace flywheel::http
