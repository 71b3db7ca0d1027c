// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/json_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "server/protocol/http/body.h"

namespace flywheel::http {
namespace {

using config::DataType;

static_assert(Body::kTailBytes >= simdjson::SIMDJSON_PADDING);

constexpr size_t kOwnParserBytes = 1 << 20;

Status depth_error() {
  return invalid_argument(fmt::format("JSON nesting depth exceeds maximum allowed limit ({})", kMaxJsonDepth));
}

Status parse_error(simdjson::error_code code) {
  return invalid_argument(fmt::format("failed to parse the request JSON buffer: {}", simdjson::error_message(code)));
}

Status type_error(std::string_view what, std::string_view problem) {
  return invalid_argument(fmt::format("Unable to parse '{}': {}", what, problem));
}

// A value of the wrong type, or no value at all.
Status wrong_type(ondemand::value value, std::string_view what, std::string_view problem) {
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) return parse_error(error);
  return type_error(what, problem);
}

// simdjson knows JSON's grammar alone; clients written in Python send these.
bool read_special_number(ondemand::value value, double& out) {
  std::string_view token = value.raw_json_token();
  while (!token.empty() &&
         (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t')) {
    token.remove_suffix(1);
  }
  if (token == "NaN") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (token == "Infinity" || token == "Inf") {
    out = std::numeric_limits<double>::infinity();
  } else if (token == "-Infinity" || token == "-Inf") {
    out = -std::numeric_limits<double>::infinity();
  } else {
    return false;
  }
  return true;
}

template <class T>
Status read_element(ondemand::value value, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.get_bool().get(out)) return {};
    return wrong_type(value, "data", "attempt to access JSON non-boolean as boolean");
  } else if constexpr (std::is_floating_point_v<T>) {
    double number = 0;
    if (value.get_double().get(number) && !read_special_number(value, number)) {
      return wrong_type(value, "data", "attempt to access JSON non-number as double");
    }
    out = static_cast<T>(number);
    return {};
  } else if constexpr (std::is_unsigned_v<T>) {
    uint64_t number = 0;
    if (value.get_uint64().get(number)) {
      return wrong_type(value, "data", "attempt to access JSON non-unsigned-integer as unsigned-integer");
    }
    if (number > std::numeric_limits<T>::max())
      return type_error("data", fmt::format("{} is out of the type's range", number));
    out = static_cast<T>(number);
    return {};
  } else {
    int64_t number = 0;
    if (value.get_int64().get(number)) {
      return wrong_type(value, "data", "attempt to access JSON non-signed-integer as signed-integer");
    }
    if (number > std::numeric_limits<T>::max() || number < std::numeric_limits<T>::min()) {
      return type_error("data", fmt::format("{} is out of the type's range", number));
    }
    out = static_cast<T>(number);
    return {};
  }
}

template <class T>
struct TensorReader {
  std::byte* out;
  uint64_t left;

  Status read(ondemand::array array, int depth) {
    if (depth >= kMaxJsonDepth) return depth_error();
    for (auto element : array) {
      ondemand::value value;
      if (const auto error = element.get(value)) return parse_error(error);
      ondemand::json_type type;
      if (const auto error = value.type().get(type)) {
        // NaN and its kin are no JSON type.
        double number = 0;
        if (!std::is_floating_point_v<T> || !read_special_number(value, number)) return parse_error(error);
      } else if (type == ondemand::json_type::array) {
        ondemand::array inner;
        if (const auto inner_error = value.get_array().get(inner)) return parse_error(inner_error);
        FW_RETURN_IF_ERROR(read(inner, depth + 1));
        continue;
      }
      if (left == 0) return type_error("data", "Shape does not match true shape of 'data' field");
      T number{};
      FW_RETURN_IF_ERROR(read_element(value, number));
      std::memcpy(out, &number, sizeof number);
      out += sizeof number;
      --left;
    }
    return {};
  }
};

template <class T>
Status read_tensor(ondemand::array array, uint64_t element_count, std::byte* out) {
  TensorReader<T> reader{out, element_count};
  FW_RETURN_IF_ERROR(reader.read(array, 0));
  if (reader.left != 0) return type_error("data", "Shape does not match true shape of 'data' field");
  return {};
}

Status read_strings(ondemand::array array, int depth, uint64_t& left, std::vector<std::byte>& out) {
  if (depth >= kMaxJsonDepth) return depth_error();
  for (auto element : array) {
    ondemand::value value;
    if (const auto error = element.get(value)) return parse_error(error);
    ondemand::json_type type;
    if (const auto error = value.type().get(type)) return parse_error(error);
    if (type == ondemand::json_type::array) {
      ondemand::array inner;
      if (const auto error = value.get_array().get(inner)) return parse_error(error);
      FW_RETURN_IF_ERROR(read_strings(inner, depth + 1, left, out));
      continue;
    }
    if (left == 0) return type_error("data", "Shape does not match true shape of 'data' field");
    --left;
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, "data", text));
    append_string_element(text, out);
  }
  return {};
}

}  // namespace

Status JsonDocument::parse(std::string_view json) {
  text = json;
  thread_local ondemand::parser shared;
  ondemand::parser& parser = json.size() > kOwnParserBytes ? owned : shared;
  const simdjson::padded_string_view padded(json.data(), json.size(), json.size() + simdjson::SIMDJSON_PADDING);
  if (const auto error = parser.iterate(padded).get(document)) return parse_error(error);
  return {};
}

Status JsonDocument::finish() {
  const char* where = nullptr;
  if (document.current_location().get(where)) return {};  // beyond the last token
  return invalid_argument(fmt::format("failed to parse the request JSON buffer: something follows the document at {}",
                                      where - text.data()));
}

Status JsonDocument::syntax_error(simdjson::error_code code) {
  const char* where = nullptr;
  if (document.current_location().get(where)) return parse_error(code);
  return invalid_argument(fmt::format("failed to parse the request JSON buffer: {} at {}",
                                      simdjson::error_message(code), where - text.data()));
}

Status read_json_string(ondemand::value value, std::string_view what, std::string_view& out) {
  if (!value.get_string().get(out)) return {};
  return wrong_type(value, what, kNotAString);
}

Status read_json_bool(ondemand::value value, std::string_view what, bool& out) {
  if (!value.get_bool().get(out)) return {};
  return wrong_type(value, what, "attempt to access JSON non-boolean as boolean");
}

Status read_json_uint(ondemand::value value, std::string_view what, uint64_t& out) {
  if (!value.get_uint64().get(out)) return {};
  return wrong_type(value, what, "attempt to access JSON non-unsigned-integer as unsigned-integer");
}

Status read_json_shape(ondemand::value value, std::vector<int64_t>& out) {
  ondemand::array array;
  if (value.get_array().get(array)) return wrong_type(value, "shape", kNotAnArray);
  for (auto element : array) {
    ondemand::value dim;
    if (const auto error = element.get(dim)) return parse_error(error);
    uint64_t number = 0;
    FW_RETURN_IF_ERROR(read_json_uint(dim, "shape", number));
    // Beyond int64 it wraps to a negative extent, which the checks that follow refuse.
    out.push_back(static_cast<int64_t>(number));
    if (out.size() > 64) return type_error("shape", "a tensor cannot have more than 64 dimensions");
  }
  return {};
}

Status skip_json(ondemand::value value, int depth) {
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) return parse_error(error);
  if (depth >= kMaxJsonDepth) return depth_error();
  switch (type) {
    case ondemand::json_type::array: {
      ondemand::array array;
      if (const auto error = value.get_array().get(array)) return parse_error(error);
      for (auto element : array) {
        ondemand::value inner;
        if (const auto error = element.get(inner)) return parse_error(error);
        FW_RETURN_IF_ERROR(skip_json(inner, depth + 1));
      }
      return {};
    }
    case ondemand::json_type::object: {
      ondemand::object object;
      if (const auto error = value.get_object().get(object)) return parse_error(error);
      for (auto field : object) {
        if (const auto error = field.error()) return parse_error(error);
        FW_RETURN_IF_ERROR(skip_json(field.value_unsafe().value(), depth + 1));
      }
      return {};
    }
    case ondemand::json_type::string: {
      std::string_view ignored;
      if (const auto error = value.get_string().get(ignored)) return parse_error(error);
      return {};
    }
    case ondemand::json_type::number: {
      double ignored = 0;
      if (const auto error = value.get_double().get(ignored)) return parse_error(error);
      return {};
    }
    case ondemand::json_type::boolean: {
      bool ignored = false;
      if (const auto error = value.get_bool().get(ignored)) return parse_error(error);
      return {};
    }
    case ondemand::json_type::null: {
      bool is_null = false;
      if (const auto error = value.is_null().get(is_null)) return parse_error(error);
      return is_null ? Status() : parse_error(simdjson::N_ATOM_ERROR);
    }
  }
  return {};
}

Status read_json_tensor(ondemand::value value, std::string_view name, DataType type, uint64_t element_count,
                        std::byte* out) {
  ondemand::array array;
  if (value.get_array().get(array)) return wrong_type(value, "data", kNotAnArray);
  return read_json_tensor(array, name, type, element_count, out);
}

Status read_json_tensor(ondemand::array array, std::string_view name, DataType type, uint64_t element_count,
                        std::byte* out) {
  switch (type) {
    case DataType::kBool: return read_tensor<bool>(array, element_count, out);
    case DataType::kUint8: return read_tensor<uint8_t>(array, element_count, out);
    case DataType::kUint16: return read_tensor<uint16_t>(array, element_count, out);
    case DataType::kUint32: return read_tensor<uint32_t>(array, element_count, out);
    case DataType::kUint64: return read_tensor<uint64_t>(array, element_count, out);
    case DataType::kInt8: return read_tensor<int8_t>(array, element_count, out);
    case DataType::kInt16: return read_tensor<int16_t>(array, element_count, out);
    case DataType::kInt32: return read_tensor<int32_t>(array, element_count, out);
    case DataType::kInt64: return read_tensor<int64_t>(array, element_count, out);
    case DataType::kFp32: return read_tensor<float>(array, element_count, out);
    case DataType::kFp64: return read_tensor<double>(array, element_count, out);
    case DataType::kFp16:
    case DataType::kBf16:
      return invalid_argument(
          fmt::format("receiving {} data via JSON is not supported. Please use the binary data format for input {}",
                      config::protocol_name(type), name));
    case DataType::kString:
    case DataType::kInvalid: break;
  }
  return invalid_argument(fmt::format("invalid datatype for input {}", name));
}

void append_string_element(std::string_view text, std::vector<std::byte>& out) {
  const uint32_t length = static_cast<uint32_t>(text.size());
  const auto* length_bytes = reinterpret_cast<const std::byte*>(&length);
  const auto* text_bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), length_bytes, length_bytes + sizeof length);
  out.insert(out.end(), text_bytes, text_bytes + text.size());
}

Status read_json_strings(ondemand::value value, uint64_t element_count, std::vector<std::byte>& out) {
  ondemand::array array;
  if (value.get_array().get(array)) return wrong_type(value, "data", kNotAnArray);
  FW_RETURN_IF_ERROR(read_strings(array, 0, element_count, out));
  if (element_count != 0) return type_error("data", "Shape does not match true shape of 'data' field");
  return {};
}

}  // namespace flywheel::http
