// SPDX-License-Identifier: Apache-2.0
#include "flywheel/status.h"

namespace flywheel {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kNotFound: return "not found";
    case Code::kUnsupported: return "unsupported";
    case Code::kIncompatible: return "incompatible";
    case Code::kCorrupt: return "corrupt file";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kUnavailable: return "unavailable";
    case Code::kDeadlineExceeded: return "deadline exceeded";
    case Code::kCancelled: return "cancelled";
    case Code::kAlreadyExists: return "already exists";
    case Code::kInternal: return "internal error";
  }
  return "unknown";
}

std::string Status::to_string() const {
  if (is_ok()) return "OK";
  return std::string(code_name(code_)) + ": " + message_;
}

Status Status::with_context(std::string_view prefix) const {
  if (is_ok()) return *this;
  return {code_, std::string(prefix) + ": " + message_};
}

Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }
Status incompatible(std::string message) { return {Code::kIncompatible, std::move(message)}; }
Status corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
Status out_of_memory(std::string message) { return {Code::kOutOfMemory, std::move(message)}; }
Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

}  // namespace flywheel
