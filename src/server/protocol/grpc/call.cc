// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/call.h"

#include <algorithm>
#include <cstring>

#include "server/protocol/grpc/connection.h"
#include "server/protocol/grpc/infer_wire.h"

namespace flywheel::grpc {
namespace {

constexpr size_t kSlowCompressedBytes = 64 << 10;

uint32_t read_big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

GrpcStatus no_memory() {
  return {StatusCode::kResourceExhausted,
          "no memory for the message: the messages of all calls in hand fill their budget; retry later"};
}

}  // namespace

size_t OutMessage::total_bytes() const {
  size_t total = text.size();
  for (const Blob& blob : blobs) total += blob.content.bytes.size();
  return total;
}

void OutMessage::seal(bool compressed) {
  const uint64_t size = total_bytes() - kPrefixBytes;
  text[0] = compressed ? 1 : 0;
  for (int i = 0; i < 4; ++i) text[static_cast<size_t>(1 + i)] = static_cast<char>(size >> (24 - 8 * i) & 0xFF);
}

Call::Call(GrpcLoop& loop, Connection* connection, int32_t stream_id)
    : inbox_(loop.inbox),
      budget_(loop.budget),
      slow_lane_(loop.slow_lane),
      max_message_bytes_(loop.options.max_message_bytes),
      connection_(connection),
      stream_id_(stream_id) {}

Call::~Call() { drop_outgoing(); }

void Call::wake() {
  if (!woken_.exchange(true, std::memory_order_acq_rel)) inbox_->post(shared_from_this());
}

void Call::resume() {
  resume_wanted_.store(true, std::memory_order_release);
  inbox_->post(shared_from_this());
}

void Call::post_slow(std::function<void()> task) { slow_lane_.post(std::move(task)); }

void Call::on_reactor() {
  bool more = false;
  if (handled_.exchange(false, std::memory_order_acq_rel)) {
    handling_ = false;
    wants_more_ = handled_wants_more_.load(std::memory_order_relaxed);
    if (refusal_) finish(*std::exchange(refusal_, std::nullopt));
    more = true;
  }
  if (resume_wanted_.exchange(false, std::memory_order_acq_rel)) {
    wants_more_ = true;
    more = true;
  }
  if (woken_.exchange(false, std::memory_order_acq_rel) && !ended()) handler_->on_wake();
  if (more) pump();
}

// -----------------------------------------------------------------------------------------------------------------------
// From the client.

GrpcStatus Call::begin_message(WireBytes rest) {
  const size_t size = read_big_endian(prefix_ + 1);
  message_size_ = size;
  message_.compressed = prefix_[0] != 0;
  if (prefix_[0] > 1) return {StatusCode::kInternal, "a message's first byte is neither 0 nor 1"};
  if (message_.compressed && head_.request_coding == http::Coding::kIdentity) {
    return {StatusCode::kInternal, "a message is compressed, but the call has no grpc-encoding"};
  }
  if (size > max_message_bytes_) {
    return {StatusCode::kResourceExhausted, "Received message larger than max (" + std::to_string(size) + " vs. " +
                                                std::to_string(max_message_bytes_) + ")"};
  }
  const size_t aligned_at = message_.compressed ? 0 : find_raw_contents(rest);
  message_.body = http::Body();
  if (!message_.body.reserve(size, aligned_at, budget_)) return no_memory();
  receiving_ = true;
  return {};
}

GrpcStatus Call::receive(WireBytes data, int64_t now_ns) {
  while (!data.empty()) {
    if (!receiving_) {
      const size_t count = std::min(sizeof prefix_ - prefix_size_, data.size());
      std::memcpy(prefix_ + prefix_size_, data.data(), count);
      prefix_size_ += count;
      data = data.subspan(count);
      if (prefix_size_ < sizeof prefix_) break;
      prefix_size_ = 0;
      message_since_ns_ = now_ns;
      message_period_bytes_ = 0;
      if (GrpcStatus status = begin_message(data); status.code != StatusCode::kOk) return status;
    }
    const size_t count = std::min(message_size_ - message_.body.size(), data.size());
    if (count > 0) std::memcpy(message_.body.room().data(), data.data(), count);
    if (!message_.body.commit(count)) return no_memory();
    data = data.subspan(count);
    if (message_.body.size() < message_size_) break;
    receiving_ = false;
    received_.push_back(std::move(message_));
    message_ = Incoming();
  }
  return {};
}

void Call::pump() {
  while (!ended() && !handling_ && wants_more_ && !received_.empty()) {
    Incoming incoming = std::move(received_.front());
    received_.pop_front();
    const bool slow =
        incoming.compressed ? incoming.body.size() > kSlowCompressedBytes : handler_->is_slow(incoming.body);
    if (!slow) {
      wants_more_ = give(std::move(incoming));
      if (refusal_) finish(*std::exchange(refusal_, std::nullopt));
      continue;
    }
    handling_ = true;
    slow_lane_.post([self = shared_from_this(), incoming = std::make_shared<Incoming>(std::move(incoming))] {
      self->handled_wants_more_.store(self->give(std::move(*incoming)), std::memory_order_relaxed);
      self->handled_.store(true, std::memory_order_release);
      self->inbox_->post(self);
    });
  }
  if (connection_ == nullptr) return;
  if (unconsumed_bytes_ > 0 && (wants_more_ || finished_)) {
    const size_t bytes = std::exchange(unconsumed_bytes_, 0);
    connection_->consume(*this, bytes);
  }
  if (!ended() && half_closed_ && !half_close_told_ && !handling_ && received_.empty()) {
    half_close_told_ = true;
    handler_->on_half_close();
  }
}

bool Call::give(Incoming incoming) {
  if (!incoming.compressed) return handler_->on_message(std::move(incoming.body));
  Result<http::Body> plain = http::decompress(incoming.body.bytes(), max_message_bytes_, 0, budget_);
  if (plain.is_ok()) return handler_->on_message(std::move(plain).value());
  // Told by the reactor's thread: finish() is for it alone.
  refusal_ = {plain.status().code() == Code::kInvalidArgument ? StatusCode::kInternal : StatusCode::kResourceExhausted,
              "cannot decompress a message: " + plain.status().message()};
  return false;
}

void Call::abandon() {
  if (handler_ != nullptr) handler_->on_abandoned();
}

// -----------------------------------------------------------------------------------------------------------------------
// To the client.

bool Call::send(OutMessage message) {
  if (ended()) return true;
  const size_t bytes = message.total_bytes();
  if (!budget_->take(bytes)) {
    abandon();
    finish(
        {StatusCode::kResourceExhausted, "the server holds too many answers that clients have not taken; retry later"});
    return false;
  }
  charged_bytes_ += bytes;
  if (unsent_bytes_ == 0) unsent_since_ns_ = connection_->loop().now_ns;
  unsent_bytes_ += bytes;
  outgoing_.push_back(std::move(message));
  GrpcCounters::add(connection_->loop().counters.messages_sent);
  if (!responded_) {
    connection_->begin_response(*this);
  } else if (deferred_) {
    connection_->resume_sending(*this);
  }
  connection_->wants_flush();
  return true;
}

void Call::finish(GrpcStatus status) {
  if (ended()) return;
  finished_ = true;
  status_ = std::move(status);
  connection_->end_call(*this);
}

void Call::end_message() {
  const size_t bytes = outgoing_.front().total_bytes();
  outgoing_.pop_front();
  blob_index_ = text_offset_ = blob_offset_ = 0;
  charged_bytes_ -= bytes;
  budget_->give_back(bytes);
}

void Call::drop_outgoing() {
  outgoing_.clear();
  unsent_bytes_ = 0;
  if (charged_bytes_ > 0) budget_->give_back(std::exchange(charged_bytes_, 0));
}

}  // namespace flywheel::grpc
