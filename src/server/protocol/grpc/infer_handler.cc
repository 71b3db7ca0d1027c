// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/infer_handler.h"

#include <utility>

#include "server/schedule/timeline.h"

namespace flywheel::grpc {
namespace {

constexpr size_t kSlowBytes = 64 << 10;

size_t output_bytes(const schedule::InferResponse& response) {
  size_t total = 0;
  for (const schedule::OutputTensor& output : response.outputs) total += output.bytes.size();
  return total;
}

}  // namespace

http::Coding response_coding(const GrpcOptions& options, const CallHead& head) {
  return options.response_compression == CompressionLevel::kNone ? http::Coding::kIdentity : head.response_coding;
}

InferHandler::~InferHandler() {
  // The call is over, so its answer is sent.
  if (trace_ != nullptr) trace_->stamp("GRPC_SEND_END", schedule::monotonic_now_ns());
}

void InferHandler::start(http::Body message) {
  InferParts parts;
  Status status = read_infer_message(message, sources_, call().head(), parts);
  if (status.is_ok() && is_decoupled(*parts.model)) {
    status = unsupported("ModelInfer RPC doesn't support models with decoupled transaction policy");
  }
  model_ = std::move(parts.model);
  wishes_ = std::move(parts.wishes);
  trace_ = std::move(parts.trace);
  if (!status.is_ok()) return answer(to_grpc(status));
  // The request holds the call until it is answered, and the call this.
  parts.request->on_response = [call = call().shared_from_this(), this](schedule::InferRequest& request,
                                                                        schedule::InferResponse response) {
    if (trace_ != nullptr) settings::trace_response(*trace_, request, response);
    if (!response.final) return;
    response_ = std::move(response);
    responded_ = true;
    call->wake();
  };
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    request_ = parts.request;
  }
  const repository::ServedModel& model = *model_;
  model.infer(std::move(parts.request));
}

void InferHandler::on_abandoned() {
  std::shared_ptr<schedule::InferRequest> request;
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
    request = request_.lock();
  }
  if (request != nullptr) request->cancel();
}

GrpcStatus InferHandler::failure() const {
  const int64_t deadline_ns = call_head().deadline_ns;
  if (deadline_ns != 0 && schedule::monotonic_now_ns() >= deadline_ns) {
    return {StatusCode::kDeadlineExceeded, "Deadline Exceeded"};
  }
  return to_grpc(response_.status);
}

void InferHandler::on_wake() {
  if (!responded_ || rendered_) return UnaryHandler::on_wake();
  if (!response_.status.is_ok()) return call().finish(failure());
  const http::Coding coding = response_coding(options_, call().head());
  const bool copies = coding != http::Coding::kIdentity || !wishes_.places.empty();
  if (!copies || output_bytes(response_) <= kSlowBytes) {
    render();
    return UnaryHandler::on_wake();
  }
  call().post_slow([call = call().shared_from_this(), this] {
    render();
    call->wake();
  });
}

void InferHandler::render() {
  if (trace_ != nullptr) trace_->stamp("GRPC_SEND_START", schedule::monotonic_now_ns());
  InferMessageOptions options;
  options.coding = response_coding(options_, call().head());
  Result<OutMessage> message = make_infer_message(*model_, wishes_, response_, options);
  rendered_ = true;
  if (!message.is_ok()) return set_answer(to_grpc(message.status()));
  set_answer(std::move(message).value(), options.coding);
}

}  // namespace flywheel::grpc
