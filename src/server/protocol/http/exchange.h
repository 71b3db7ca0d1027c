// SPDX-License-Identifier: Apache-2.0
// One request and its answer, between the connection that carries them and the handler that answers. The connection
// makes it once the request is whole; a handler answers at once with respond(), or leaves a Job and calls complete()
// from any thread when the answer can be rendered. An answer whose parts come one by one is a stream: its head, pieces
// and end. Answers go out in the order of their requests.
// Ownership: shared by the connection and whoever still has to answer. If the client leaves, the Job is told, and the
// answer, which is still owed, is dropped. Threads: as said at each function.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/protocol/http/body.h"
#include "server/protocol/http/parser.h"
#include "server/protocol/http/response.h"
#include "server/protocol/net/inbox.h"

namespace flywheel::http {

class Connection;
class Exchange;
using ExchangePtr = std::shared_ptr<Exchange>;

// A handler's unfinished work on one exchange.
class Job {
 public:
  virtual ~Job() = default;
  // After Exchange::complete(); on the connection's reactor, or on the server's slow lane if is_slow().
  virtual Response render() = 0;
  virtual bool is_slow() const { return false; }
  // The client is gone before complete(): stop what can be stopped. Must not block.
  virtual void abandon() = 0;
};

class Exchange : public net::Completion, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<net::Inbox> inbox, std::string head_text)
      : inbox_(std::move(inbox)), head_text_(std::move(head_text)) {}

  // The request. Unchanged once the handler has it.
  const RequestHead& head() const { return head_; }
  const Body& body() const { return body_; }
  int64_t began_ns() const { return began_ns_; }        // when its head had arrived
  int64_t received_ns() const { return received_ns_; }  // when its last byte had arrived

  // Any thread; exactly one of respond(), complete() and begin_stream(), exactly once.
  void respond(Response response);
  // REQUIRES: set_job() was called.
  void complete();
  // `head` may have a body, which is the first piece. Then stream() any number of times and end_stream() once, by one
  // thread at a time. A client that reads too slowly for what piles up is disconnected.
  void begin_stream(Response head);
  void stream(std::string_view piece);
  void end_stream(std::shared_ptr<const void> held_until_sent = nullptr);
  // The handler's thread. Tells the job at once if the client is gone already.
  void set_job(std::unique_ptr<Job> job);

 private:
  friend class Connection;
  void on_reactor() override;
  void abandon();  // the reactor's thread

  const std::shared_ptr<net::Inbox> inbox_;
  const std::string head_text_;  // what head_ points into
  RequestHead head_;
  Body body_;
  int64_t began_ns_ = 0;
  int64_t received_ns_ = 0;
  Response response_;
  BudgetShare answer_share_;          // of the answers' budget
  bool rendered_ = false;             // response_ is filled
  Connection* connection_ = nullptr;  // the reactor's thread only; null when the client is gone
  bool done_ = false;                 // the reactor's thread only: response_ may be sent
  std::mutex stream_mutex_;
  bool streaming_ = false;
  bool stream_ended_ = false;
  std::string stream_pieces_;        // not yet taken by the connection
  bool stream_head_queued_ = false;  // the reactor's thread only
  std::mutex job_mutex_;
  std::unique_ptr<Job> job_;
  bool abandoned_ = false;
};

// What a handler says of a request whose head has arrived, before its body is received.
struct BodyPlan {
  uint64_t limit_bytes = 0;
  size_t aligned_at = 0;  // this byte of the body is to lie on a 64-byte boundary
};

// Called by reactors, and by the slow lane for requests that is_slow() names; so by several threads at once.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual BodyPlan plan_body(const RequestHead& head) = 0;
  virtual Response body_too_large(const RequestHead& head, uint64_t body_bytes) = 0;
  // True: handling takes long (milliseconds) and is to happen on the slow lane.
  virtual bool is_slow(const Exchange& exchange) = 0;
  // Answers, or leaves a Job that will.
  virtual void handle(const ExchangePtr& exchange) = 0;
};

}  // namespace flywheel::http
