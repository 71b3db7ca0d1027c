// SPDX-License-Identifier: Apache-2.0
// What every fallible Flywheel call returns. Nothing throws across the library's door: a call gives a Status, or a
// Result<T> that holds either a value or the Status that says why there is none.
// Thread safety: values, like std::string.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace flywheel {

// What the caller should do differs by code, so codes are never merged.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,   // the input is wrong: fix it as the message says
  kNotFound,          // the named file, model, tensor or version does not exist
  kUnsupported,       // valid, but Flywheel cannot do it: the message names what and the way round
  kIncompatible,      // an engine file that this machine or version cannot run: rebuild it
  kCorrupt,           // a damaged or hostile file
  kOutOfMemory,       // needed and available bytes are in the message
  kUnavailable,       // try again later: overloaded, stopping, not ready
  kDeadlineExceeded,  // the request's time ran out before it was executed
  kCancelled,         // the caller gave up
  kAlreadyExists,     // the name is taken
  kInternal,          // a fault of Flywheel's own: please report it
};

// The code's name as users see it, e.g. "invalid argument".
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  bool is_ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "invalid argument: <message>", or "OK".
  std::string to_string() const;
  // The same code with `prefix` + ": " before the message. OK stays OK.
  Status with_context(std::string_view prefix) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status unsupported(std::string message);
Status incompatible(std::string message);
Status corrupt(std::string message);
Status out_of_memory(std::string message);
Status unavailable(std::string message);
Status internal_error(std::string message);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): `return value;` must work
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor): so must `return status;`
    if (status_.is_ok()) status_ = internal_error("a Result was made from an OK status without a value");
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: is_ok(). Anything else is a bug of the caller's and ends the process.
  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }

 private:
  T& checked() {
    if (!value_) std::abort();
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace flywheel

#define FW_CONCAT_INNER(a, b) a##b
#define FW_CONCAT(a, b) FW_CONCAT_INNER(a, b)
// Returns the status from the enclosing function when `expr` is not OK.
#define FW_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                               \
    if (::flywheel::Status fw_status = (expr); !fw_status.is_ok()) return fw_status; \
  } while (0)
// FW_ASSIGN_OR_RETURN(auto x, f()): x = value of f(), or returns its status.
#define FW_ASSIGN_OR_RETURN(lhs, expr) FW_ASSIGN_OR_RETURN_INNER(FW_CONCAT(fw_result_, __LINE__), lhs, expr)
#define FW_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.is_ok()) return result.status();       \
  lhs = std::move(result).value()
