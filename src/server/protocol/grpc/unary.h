// SPDX-License-Identifier: Apache-2.0
// Calls with one request and one response, and how the methods that are told in protobuf's classes become such calls.
// Threads: as CallHandler says; answer() any.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "server/protocol/grpc/call.h"

namespace flywheel::grpc {

class UnaryHandler : public CallHandler {
 public:
  explicit UnaryHandler(Call& call) : call_(call) {}

  bool on_message(http::Body message) final;
  bool is_slow(const http::Body&) const override { return false; }
  void on_half_close() final;
  void on_wake() override;
  void on_abandoned() override {}

 protected:
  // The request is here. Calls answer() once, now or later, from any thread.
  virtual void start(http::Body message) = 0;
  void answer(GrpcStatus status);
  void answer(OutMessage message);
  // The same without a wake-up: for on_wake() to send.
  void set_answer(GrpcStatus status) { status_ = std::move(status); }
  void set_answer(OutMessage message, http::Coding coding);
  Call& call() { return call_; }
  const CallHead& call_head() const { return call_.head(); }

 private:
  Call& call_;  // which owns this
  bool started_ = false;
  std::optional<OutMessage> message_;  // before wake()
  http::Coding coding_ = http::Coding::kIdentity;
  GrpcStatus status_;
};

// A method that is answered at once.
template <class Request, class Response>
class ProtoHandler : public UnaryHandler {
 public:
  using Method = std::function<Status(const Request&, Response&)>;
  ProtoHandler(Call& call, Method method) : UnaryHandler(call), method_(std::move(method)) {}

 protected:
  void start(http::Body message) override {
    Request request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return answer(GrpcStatus{StatusCode::kInternal, "the request cannot be parsed"});
    }
    Response response;
    if (const Status status = method_(request, response); !status.is_ok()) return answer(to_grpc(status));
    OutMessage out;
    response.AppendToString(&out.text);
    out.seal(false);
    answer(std::move(out));
  }

 private:
  const Method method_;
};

}  // namespace flywheel::grpc
