// SPDX-License-Identifier: Apache-2.0
// One gRPC call: what the client sent of it, and what is to be sent back. The connection makes it when the request's
// header fields are there and gives it a CallHandler by its path; messages go to the handler, which sends messages and
// finishes the call. Ownership: shared by the connection and whoever still has to answer; when the client leaves or its
// deadline passes the handler is told, and what it sends from then on is dropped.
// Threads: the reactor's, but for wake() and what says otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/protocol/grpc/grpc_status.h"
#include "server/protocol/http/body.h"
#include "server/protocol/http/content_coding.h"
#include "server/protocol/http/response.h"
#include "server/protocol/http/slow_lane.h"
#include "server/protocol/net/completion.h"
#include "server/protocol/net/inbox.h"

namespace flywheel::grpc {

using WireBytes = std::span<const std::byte>;

class Call;
class Connection;
class GrpcLoop;
using CallPtr = std::shared_ptr<Call>;

// What serves one call.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  // One at a time and in order; on the reactor, or on the slow lane if is_slow() said so. False: the handler has
  // enough, and calls Call::resume() when it wants more.
  virtual bool on_message(http::Body message) = 0;
  virtual bool is_slow(const http::Body& message) const = 0;
  // The client sends no more; after the last on_message() has returned.
  virtual void on_half_close() = 0;
  // After Call::wake().
  virtual void on_wake() {}
  // The client is gone, or its deadline has passed: nobody waits for an answer. May come while on_message() runs.
  virtual void on_abandoned() = 0;
  // The server stops: a call that could go on for ever ends when what was asked of it is answered.
  virtual void on_drain() {}
  // About once a second.
  virtual void on_tick() {}
};

// A message to the client: gRPC's five bytes of prefix and the message's own, the blobs in between where `places` say.
struct OutMessage {
  static constexpr size_t kPrefixBytes = 5;
  std::string text = std::string(kPrefixBytes, '\0');
  struct Blob {
    size_t at = 0;  // before this byte of `text`; ascending
    http::Response::Blob content;
  };
  std::vector<Blob> blobs;

  size_t total_bytes() const;
  void seal(bool compressed);  // fills in the prefix; the last step
};

// From the header fields.
struct CallHead {
  std::string path;
  int64_t received_ns = 0;
  int64_t deadline_ns = 0;  // of the monotonic clock; 0: none
  http::Coding request_coding = http::Coding::kIdentity;
  http::Coding response_coding = http::Coding::kIdentity;   // the best that the client takes
  bool wants_grpc_errors = false;                           // Triton's triton_grpc_error
  std::vector<std::pair<std::string, std::string>> fields;  // all others, if the options ask for them
};

class Call : public net::Completion, public std::enable_shared_from_this<Call> {
 public:
  Call(GrpcLoop& loop, Connection* connection, int32_t stream_id);
  ~Call() override;

  const CallHead& head() const { return head_; }
  // Any thread: on_wake() will be called, once for all calls of wake() so far, unless the call has ended.
  void wake();
  // Any thread: on_message() may be called again.
  void resume();
  // How compressed messages of this call are; before the first send().
  void set_encoding(http::Coding coding) { encoding_ = coding; }
  // Dropped when the call has ended. False: there is no room for it; the call ends.
  bool send(OutMessage message);
  // The first status counts.
  void finish(GrpcStatus status);
  bool ended() const { return finished_ || connection_ == nullptr; }
  // The client has not taken these yet.
  size_t unsent_bytes() const { return unsent_bytes_; }
  // The task runs where long work holds nobody up.
  void post_slow(std::function<void()> task);
  // Bytes of requests and answers in hand, all calls together.
  const std::shared_ptr<http::BodyBudget>& budget() const { return budget_; }

 private:
  friend class Connection;
  friend class GrpcLoop;
  friend class Session;
  struct Incoming {
    http::Body body;
    bool compressed = false;
  };
  void on_reactor() override;
  GrpcStatus receive(WireBytes data, int64_t now_ns);
  GrpcStatus begin_message(WireBytes rest);
  // Gives the handler what it wants of what was received.
  void pump();
  bool give(Incoming incoming);  // what on_message() says
  // Sends the next bytes: `copy` gets what has to be copied, `keep` what may stay where it is.
  template <class Copy, class Keep>
  void take_outgoing(size_t count, Copy&& copy, Keep&& keep);
  void end_message();
  void drop_outgoing();
  void abandon();

  const std::shared_ptr<net::Inbox> inbox_;
  const std::shared_ptr<http::BodyBudget> budget_;
  http::SlowLane& slow_lane_;
  const uint64_t max_message_bytes_;
  Connection* connection_;  // null when the stream is gone
  const int32_t stream_id_;
  size_t index_ = 0;  // in the connection's list
  CallHead head_;
  std::unique_ptr<CallHandler> handler_;

  // From the client.
  size_t header_bytes_ = 0;
  std::optional<GrpcStatus> refusal_;  // found while header fields arrived
  bool is_grpc_ = false;
  bool is_post_ = false;
  unsigned char prefix_[5] = {};
  size_t prefix_size_ = 0;
  bool receiving_ = false;  // a message's prefix has arrived, and not yet all of it
  size_t message_size_ = 0;
  Incoming message_;
  int64_t message_since_ns_ = 0;
  size_t message_period_bytes_ = 0;
  std::deque<Incoming> received_;
  bool half_closed_ = false;
  bool half_close_told_ = false;
  bool handling_ = false;  // on_message() runs on the slow lane
  bool wants_more_ = true;
  size_t unconsumed_bytes_ = 0;  // of the client's window, held back while the handler wants no more

  // To the client.
  std::deque<OutMessage> outgoing_;
  size_t blob_index_ = 0, text_offset_ = 0, blob_offset_ = 0;  // sent of the first
  size_t unsent_bytes_ = 0;
  size_t charged_bytes_ = 0;  // of the budget
  int64_t unsent_since_ns_ = 0;
  http::Coding encoding_ = http::Coding::kIdentity;
  bool responded_ = false;  // the header fields are on their way
  bool deferred_ = false;   // nghttp2 waits for more to send
  bool finished_ = false;
  GrpcStatus status_;

  std::atomic<bool> woken_{false};
  std::atomic<bool> resume_wanted_{false};
  std::atomic<bool> handled_{false};  // the slow lane's on_message() has returned
  std::atomic<bool> handled_wants_more_{false};
};

template <class Copy, class Keep>
void Call::take_outgoing(size_t count, Copy&& copy, Keep&& keep) {
  constexpr size_t kCopiedBytes = 8 << 10;  // copying these frees a whole batch's outputs early
  unsent_bytes_ -= count;
  while (count > 0) {
    OutMessage& message = outgoing_.front();
    const bool blobs_left = blob_index_ < message.blobs.size();
    const size_t text_end = blobs_left ? message.blobs[blob_index_].at : message.text.size();
    if (text_offset_ < text_end) {
      const size_t size = std::min(text_end - text_offset_, count);
      copy(std::string_view(message.text).substr(text_offset_, size));
      text_offset_ += size;
      count -= size;
    } else if (blobs_left) {
      const http::Response::Blob& blob = message.blobs[blob_index_].content;
      const size_t size = std::min(blob.bytes.size() - blob_offset_, count);
      const WireBytes bytes = blob.bytes.subspan(blob_offset_, size);
      if (size <= kCopiedBytes) {
        copy(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      } else {
        keep(http::Response::Blob{bytes, blob.owner});
      }
      blob_offset_ += size;
      count -= size;
      if (blob_offset_ == blob.bytes.size()) {
        ++blob_index_;
        blob_offset_ = 0;
      }
    }
    if (blob_index_ == message.blobs.size() && text_offset_ == message.text.size()) end_message();
  }
}

// Which calls there are. Called by all reactors at once.
class Service {
 public:
  virtual ~Service() = default;
  // Null: no such method.
  virtual std::unique_ptr<CallHandler> open(Call& call) = 0;
};

}  // namespace flywheel::grpc
