// SPDX-License-Identifier: Apache-2.0
// How a call ends: gRPC's codes by their numbers, and which of them a Status becomes; Triton's table, where Triton has
// the code. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel::grpc {

enum class StatusCode : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
inline constexpr size_t kStatusCodes = 17;
std::string_view status_code_name(StatusCode code);  // "INVALID_ARGUMENT"

struct GrpcStatus {
  StatusCode code = StatusCode::kOk;
  std::string message;
};

GrpcStatus to_grpc(const Status& status);
// For the header field: what is not printable ASCII, and '%', as %XX.
std::string percent_encode(std::string_view message);

}  // namespace flywheel::grpc
