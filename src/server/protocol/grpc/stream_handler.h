// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer: many requests over one call, several of them in hand at a time. Models that give one response each
// are answered in the requests' order; decoupled ones as their responses come. A failed request is told within the
// stream, which goes on, unless the client asked for the call to fail (triton_grpc_error).
// Threads: as CallHandler says; models respond from theirs.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "server/protocol/grpc/infer_request.h"
#include "server/protocol/grpc/options.h"

namespace flywheel::grpc {

class StreamHandler : public CallHandler {
 public:
  StreamHandler(Call& call, const InferSources& sources, const GrpcOptions& options)
      : call_(call), sources_(sources), options_(options) {}

  bool on_message(http::Body message) override;
  bool is_slow(const http::Body& message) const override { return is_slow_infer_request(message); }
  void on_half_close() override;
  void on_wake() override;
  void on_abandoned() override;
  void on_drain() override;
  void on_tick() override { on_wake(); }

 private:
  // One request of the stream.
  struct Item {
    ~Item() {
      if (trace != nullptr) trace->stamp("GRPC_SEND_END", schedule::monotonic_now_ns());
    }
    InferWishes wishes;
    settings::TracePtr trace;
    repository::ServedModelPtr model;
    bool decoupled = false;
    bool refused = false;  // the model never saw it
    std::weak_ptr<schedule::InferRequest> request;
    std::deque<schedule::InferResponse> responses;  // not yet sent
    bool done = false;                              // the last of them is there
  };
  using ItemPtr = std::shared_ptr<Item>;
  struct Ready {
    ItemPtr item;
    schedule::InferResponse response;
  };

  std::vector<Ready> take_ready();
  bool send_response(Ready ready);
  void end_if_done();

  Call& call_;  // which owns this
  const InferSources& sources_;
  const GrpcOptions& options_;
  std::mutex mutex_;  // for all below
  std::list<ItemPtr> items_;
  bool half_closed_ = false;
  bool draining_ = false;
  bool abandoned_ = false;
  bool paused_ = false;
};

}  // namespace flywheel::grpc
