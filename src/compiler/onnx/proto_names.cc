// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/proto_names.h"

#include <fmt/format.h>

#include <array>

namespace flywheel::onnx_import {
namespace {

constexpr std::array<std::string_view, 29> kTensorTypeNames = {
    "UNDEFINED",  "FLOAT",        "UINT8",          "INT8",       "UINT16",         "INT16",  "INT32",     "INT64",
    "STRING",     "BOOL",         "FLOAT16",        "DOUBLE",     "UINT32",         "UINT64", "COMPLEX64", "COMPLEX128",
    "BFLOAT16",   "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",  "INT4",      "FLOAT4E2M1",
    "FLOAT8E8M0", "UINT2",        "INT2",           "FLOAT6E2M3", "FLOAT6E3M2"};
constexpr std::array<std::string_view, 15> kAttributeTypeNames = {
    "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
    "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};

// The length of the UTF-8 sequence that `text` begins with; 0 when it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  uint32_t code = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
  return length;
}

bool is_control(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

}  // namespace

std::string tensor_type_name(int64_t type) {
  if (type >= 0 && type < static_cast<int64_t>(kTensorTypeNames.size())) return std::string(kTensorTypeNames[type]);
  return fmt::format("type {}", type);
}

std::string attribute_type_name(int32_t type) {
  if (type >= 0 && type < static_cast<int32_t>(kAttributeTypeNames.size()))
    return std::string(kAttributeTypeNames[type]);
  return fmt::format("type {}", type);
}

std::optional<DType> to_dtype(int64_t tensor_type) {
  switch (tensor_type) {
    case kTypeFloat: return DType::kFloat32;
    case kTypeUInt8: return DType::kUInt8;
    case kTypeInt8: return DType::kInt8;
    case kTypeUInt16: return DType::kUInt16;
    case kTypeInt16: return DType::kInt16;
    case kTypeInt32: return DType::kInt32;
    case kTypeInt64: return DType::kInt64;
    case kTypeBool: return DType::kBool;
    case kTypeFloat16: return DType::kFloat16;
    case kTypeDouble: return DType::kFloat64;
    case kTypeUInt32: return DType::kUInt32;
    case kTypeUInt64: return DType::kUInt64;
    case kTypeBFloat16: return DType::kBFloat16;
    default: return std::nullopt;
  }
}

bool is_ai_onnx(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

std::string_view domain_name(std::string_view domain) { return is_ai_onnx(domain) ? "ai.onnx" : domain; }

Status check_name(std::string_view name, std::string_view what) {
  if (name.size() > kMaxNameBytes) {
    return invalid_argument(fmt::format("{} '{}' has a name of {} bytes; at most {} are accepted", what,
                                        printable(name), name.size(), kMaxNameBytes));
  }
  for (size_t i = 0; i < name.size();) {
    const size_t length = utf8_length(name.substr(i));
    if (length == 0 || is_control(name[i])) {
      return invalid_argument(fmt::format("{} '{}' has a name with {} at byte {}; rename it", what, printable(name),
                                          length == 0 ? "invalid UTF-8" : "a control character", i));
    }
    i += length;
  }
  return Status::ok();
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (out.size() >= kLongest) return out + "...";
    const size_t length = utf8_length(text.substr(i));
    if (length == 0 || is_control(text[i])) {
      out += '?';
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace flywheel::onnx_import
