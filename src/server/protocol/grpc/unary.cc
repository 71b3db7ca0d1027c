// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/unary.h"

namespace flywheel::grpc {

bool UnaryHandler::on_message(http::Body message) {
  if (started_) return false;  // the answer to the first ends the call
  started_ = true;
  start(std::move(message));
  return true;
}

void UnaryHandler::on_half_close() {
  if (!started_) call_.finish({StatusCode::kInternal, "the call has no request"});
}

void UnaryHandler::answer(GrpcStatus status) {
  status_ = std::move(status);
  call_.wake();
}

void UnaryHandler::answer(OutMessage message) {
  message_ = std::move(message);
  call_.wake();
}

void UnaryHandler::set_answer(OutMessage message, http::Coding coding) {
  message_ = std::move(message);
  coding_ = coding;
}

void UnaryHandler::on_wake() {
  if (message_) call_.set_encoding(coding_);
  if (message_ && !call_.send(std::move(*message_))) return;
  call_.finish(std::move(status_));
}

}  // namespace flywheel::grpc
