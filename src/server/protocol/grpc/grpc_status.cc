// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/grpc_status.h"

namespace flywheel::grpc {
namespace {

// Clients refuse header blocks that are too large; a message past this says nothing more anyway.
constexpr size_t kMaxMessageBytes = 4096;

StatusCode code_of(Code code) {
  switch (code) {
    case Code::kOk: return StatusCode::kOk;
    case Code::kInvalidArgument: return StatusCode::kInvalidArgument;
    case Code::kNotFound: return StatusCode::kNotFound;
    case Code::kUnsupported: return StatusCode::kUnimplemented;
    case Code::kIncompatible: return StatusCode::kFailedPrecondition;
    case Code::kOutOfMemory: return StatusCode::kResourceExhausted;
    // A request that waited too long in its queue is refused as a full queue refuses: that is not the call's deadline.
    case Code::kUnavailable:
    case Code::kDeadlineExceeded: return StatusCode::kUnavailable;
    case Code::kCancelled: return StatusCode::kCancelled;
    case Code::kAlreadyExists: return StatusCode::kAlreadyExists;
    case Code::kCorrupt:
    case Code::kInternal: return StatusCode::kInternal;
  }
  return StatusCode::kUnknown;
}

}  // namespace

std::string_view status_code_name(StatusCode code) {
  static constexpr std::string_view kNames[kStatusCodes] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return kNames[static_cast<size_t>(code)];
}

GrpcStatus to_grpc(const Status& status) { return {code_of(status.code()), status.message()}; }

std::string percent_encode(std::string_view message) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(message.size());
  for (char c : message.substr(0, kMaxMessageBytes)) {
    if (c >= ' ' && c <= '~' && c != '%') {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

}  // namespace flywheel::grpc
