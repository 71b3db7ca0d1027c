// SPDX-License-Identifier: Apache-2.0
#include "server/config/json_writer.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

namespace flywheel::config {
namespace {

using config::DataType;

template <class T>
void append_float(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  char text[40];
  const char* end = fmt::format_to(text, FMT_COMPILE("{}"), value);
  const std::string_view digits(text, static_cast<size_t>(end - text));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

template <class Stored, class Append>
void append_elements(std::string& out, std::span<const std::byte> bytes, size_t text_bytes_each, Append append) {
  const size_t count = bytes.size() / sizeof(Stored);
  out.reserve(out.size() + count * text_bytes_each);
  for (size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    if (i > 0) out += ',';
    append(out, value);
  }
}

template <class Stored>
void append_integers(std::string& out, std::span<const std::byte> bytes) {
  append_elements<Stored>(out, bytes, 4, [](std::string& text, Stored value) {
    if constexpr (std::is_signed_v<Stored>) {
      append_json_int(text, value);
    } else {
      append_json_uint(text, value);
    }
  });
}

Status append_strings(std::string& out, std::span<const std::byte> bytes) {
  bool first = true;
  while (!bytes.empty()) {
    uint32_t length = 0;
    if (bytes.size() < sizeof length) return internal_error("a string tensor ends within a length");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes = bytes.subspan(sizeof length);
    if (length > bytes.size()) return internal_error("a string tensor ends within a string");
    if (!first) out += ',';
    first = false;
    append_json_string(out, {reinterpret_cast<const char*>(bytes.data()), length});
    bytes = bytes.subspan(length);
  }
  return {};
}

}  // namespace

void append_json_int(std::string& out, int64_t value) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void append_json_uint(std::string& out, uint64_t value) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void append_json_float(std::string& out, float value) { append_float(out, value); }
void append_json_double(std::string& out, double value) { append_float(out, value); }

void append_json_shape(std::string& out, std::span<const int64_t> dims) {
  out += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    append_json_int(out, dims[i]);
  }
  out += ']';
}

Status append_json_tensor(std::string& out, DataType type, std::span<const std::byte> bytes) {
  Status status;
  out += '[';
  switch (type) {
    case DataType::kBool:
      append_elements<uint8_t>(out, bytes, 6,
                               [](std::string& text, uint8_t value) { text += value ? "true" : "false"; });
      break;
    case DataType::kUint8: append_integers<uint8_t>(out, bytes); break;
    case DataType::kUint16: append_integers<uint16_t>(out, bytes); break;
    case DataType::kUint32: append_integers<uint32_t>(out, bytes); break;
    case DataType::kUint64: append_integers<uint64_t>(out, bytes); break;
    case DataType::kInt8: append_integers<int8_t>(out, bytes); break;
    case DataType::kInt16: append_integers<int16_t>(out, bytes); break;
    case DataType::kInt32: append_integers<int32_t>(out, bytes); break;
    case DataType::kInt64: append_integers<int64_t>(out, bytes); break;
    case DataType::kFp32: append_elements<float>(out, bytes, 11, append_json_float); break;
    case DataType::kFp64: append_elements<double>(out, bytes, 20, append_json_double); break;
    case DataType::kString: status = append_strings(out, bytes); break;
    case DataType::kFp16:
      return invalid_argument(
          "sending FP16 data via JSON is not supported. Please use the binary data format for output");
    case DataType::kBf16:
      return invalid_argument(
          "sending BF16 data via JSON is not supported. Please use the binary data format for output");
    case DataType::kInvalid: return internal_error("an output has no data type");
  }
  out += ']';
  return status;
}

}  // namespace flywheel::config
