// SPDX-License-Identifier: Apache-2.0
// ModelInfer: one request, from the message to the model, and its response back. Made by InferenceService for each
// call. Threads: as CallHandler says; the model's response comes on a thread of the model's and is rendered on the
// reactor.
#pragma once

#include <memory>
#include <mutex>

#include "server/protocol/grpc/infer_request.h"
#include "server/protocol/grpc/options.h"
#include "server/protocol/grpc/unary.h"

namespace flywheel::grpc {

class InferHandler : public UnaryHandler {
 public:
  InferHandler(Call& call, const InferSources& sources, const GrpcOptions& options)
      : UnaryHandler(call), sources_(sources), options_(options) {}
  ~InferHandler() override;

  bool is_slow(const http::Body& message) const override { return is_slow_infer_request(message); }
  void on_wake() override;
  void on_abandoned() override;

 protected:
  void start(http::Body message) override;

 private:
  GrpcStatus failure() const;
  void render();

  const InferSources& sources_;
  const GrpcOptions& options_;
  repository::ServedModelPtr model_;
  InferWishes wishes_;
  settings::TracePtr trace_;
  bool responded_ = false;  // response_ is there; before wake()
  bool rendered_ = false;   // the answer is there; before wake()
  schedule::InferResponse response_;
  std::mutex mutex_;  // for the two below
  bool abandoned_ = false;
  std::weak_ptr<schedule::InferRequest> request_;  // only to cancel it
};

// How responses to inference of this call are to be compressed.
http::Coding response_coding(const GrpcOptions& options, const CallHead& head);

}  // namespace flywheel::grpc
