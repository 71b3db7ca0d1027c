// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/tensor_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <variant>

#include "base/json.h"
#include "server/config/data_type.h"
#include "tensor/shape.h"

namespace flywheel::python {
namespace {

using config::DataType;

constexpr uint32_t kMaxRank = 32;
constexpr std::string_view kMalformed = "the Python process sent a description that ends too early";

std::string double_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Whether the bytes are as many strings as the shape has elements.
bool strings_fit(std::span<const std::byte> bytes, int64_t elements) {
  size_t at = 0;
  for (int64_t i = 0; i < elements; ++i) {
    uint32_t size = 0;
    if (bytes.size() - at < sizeof size) return false;
    std::memcpy(&size, bytes.data() + at, sizeof size);
    at += sizeof size;
    if (bytes.size() - at < size) return false;
    at += size;
  }
  return at == bytes.size();
}

Status check_size(const schedule::OutputTensor& tensor) {
  const std::optional<int64_t> elements = checked_element_count(tensor.shape);
  if (!elements) return corrupt(fmt::format("tensor '{}' of the Python process has an impossible shape", tensor.name));
  if (tensor.data_type == DataType::kString) {
    if (strings_fit(tensor.bytes, *elements)) return {};
    return corrupt(fmt::format("tensor '{}' of the Python process is not {} strings", tensor.name, *elements));
  }
  const int64_t element_bytes = static_cast<int64_t>(config::element_bytes(tensor.data_type));
  int64_t expected = 0;
  if (element_bytes == 0 || __builtin_mul_overflow(*elements, element_bytes, &expected) ||
      static_cast<uint64_t>(expected) != tensor.bytes.size()) {
    return corrupt(fmt::format("tensor '{}' of the Python process has {} bytes, but its shape and type need {}",
                               tensor.name, tensor.bytes.size(), expected));
  }
  return {};
}

}  // namespace

void append_parameters(std::string& json, const schedule::Parameters& parameters) {
  json += '{';
  bool first = true;
  for (const auto& [name, value] : parameters) {
    if (!first) json += ',';
    first = false;
    json += json_quote(name);
    json += ':';
    if (const bool* flag = std::get_if<bool>(&value)) {
      json += *flag ? "true" : "false";
    } else if (const int64_t* number = std::get_if<int64_t>(&value)) {
      json += std::to_string(*number);
    } else if (const double* real = std::get_if<double>(&value)) {
      json += double_text(*real);
    } else {
      json += json_quote(std::get<std::string>(value));
    }
  }
  json += '}';
}

void append_strings(std::string& json, std::span<const std::string> values) {
  json += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) json += ',';
    json += json_quote(values[i]);
  }
  json += ']';
}

void append_correlation_id(std::string& json, const schedule::SequencePosition& sequence) {
  if (const std::string* text = std::get_if<std::string>(&sequence.id)) {
    json += json_quote(*text);
  } else {
    json += std::to_string(std::get<uint64_t>(sequence.id));
  }
}

void append_tensor(Outgoing& message, std::string_view name, DataType type, std::span<const int64_t> shape,
                   std::span<const std::byte> bytes) {
  std::string& json = message.meta;
  json += '[';
  json += json_quote(name);
  fmt::format_to(std::back_inserter(json), ",{},[", static_cast<int>(type));
  for (size_t i = 0; i < shape.size(); ++i)
    fmt::format_to(std::back_inserter(json), "{}{}", i > 0 ? "," : "", shape[i]);
  const size_t offset = message.add(bytes);
  fmt::format_to(std::back_inserter(json), "],{},{}]", offset, bytes.size());
}

Result<std::vector<schedule::OutputTensor>> read_tensors(MessageReader& reader, const Incoming& message) {
  std::vector<schedule::OutputTensor> tensors(reader.count());
  for (schedule::OutputTensor& tensor : tensors) {
    tensor.name = reader.string();
    const uint8_t type = reader.u8();
    if (type == 0 || type > static_cast<uint8_t>(DataType::kBf16))
      return corrupt(fmt::format("tensor '{}' of the Python process has the unknown type {}", tensor.name, type));
    tensor.data_type = static_cast<DataType>(type);
    const uint32_t rank = reader.u32();
    if (rank > kMaxRank)
      return invalid_argument(
          fmt::format("tensor '{}' has {} dimensions, but at most {} are possible", tensor.name, rank, kMaxRank));
    for (uint32_t i = 0; i < rank; ++i) tensor.shape.push_back(reader.i64());
    const uint64_t offset = reader.u64();
    const uint64_t size = reader.u64();
    if (!reader.ok()) return corrupt(std::string(kMalformed));
    if (offset > message.data.size() || size > message.data.size() - offset)
      return corrupt(fmt::format("tensor '{}' of the Python process lies outside of its message", tensor.name));
    tensor.bytes = message.data.subspan(offset, size);
    tensor.owner = message.owner;
    FW_RETURN_IF_ERROR(check_size(tensor));
  }
  if (!reader.ok()) return corrupt(std::string(kMalformed));
  return tensors;
}

schedule::Parameters read_parameters(MessageReader& reader) {
  schedule::Parameters parameters;
  const uint32_t count = reader.count();
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.string();
    switch (reader.u8()) {
      case 0: parameters[std::move(name)] = reader.u8() != 0; break;
      case 1: parameters[std::move(name)] = reader.i64(); break;
      case 2: parameters[std::move(name)] = reader.f64(); break;
      default: parameters[std::move(name)] = reader.string(); break;
    }
  }
  return parameters;
}

Result<ModelResponse> read_response(MessageReader& reader, const Incoming& message, bool failed) {
  ModelResponse response;
  if (failed) {
    const Code code = code_from_triton(reader.u32());
    response.status = {code, reader.string()};
  } else {
    response.parameters = read_parameters(reader);
    FW_ASSIGN_OR_RETURN(response.outputs, read_tensors(reader, message));
  }
  if (!reader.ok()) return corrupt(std::string(kMalformed));
  return response;
}

std::vector<schedule::OutputTensor> select_outputs(std::vector<schedule::OutputTensor> given,
                                                   std::span<const std::string> wanted,
                                                   const config::ModelConfig& config) {
  std::vector<schedule::OutputTensor> selected;
  auto select = [&](const std::string& name) {
    for (schedule::OutputTensor& tensor : given) {
      if (tensor.name != name) continue;
      selected.push_back(std::move(tensor));
      tensor.name.clear();
      return;
    }
  };
  for (const std::string& name : wanted) select(name);
  if (wanted.empty()) {
    for (const config::TensorConfig& output : config.outputs) select(output.name);
  }
  return selected;
}

Code code_from_triton(uint32_t code) {
  switch (code) {
    case 2: return Code::kNotFound;
    case 3: return Code::kInvalidArgument;
    case 4: return Code::kUnavailable;
    case 5: return Code::kUnsupported;
    case 6: return Code::kAlreadyExists;
    case 7: return Code::kCancelled;
    default: return Code::kInternal;
  }
}

uint32_t code_to_triton(Code code) {
  switch (code) {
    case Code::kNotFound: return 2;
    case Code::kInvalidArgument: return 3;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded: return 4;
    case Code::kUnsupported: return 5;
    case Code::kAlreadyExists: return 6;
    case Code::kCancelled: return 7;
    default: return 1;
  }
}

}  // namespace flywheel::python
