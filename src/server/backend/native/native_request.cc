// SPDX-License-Identifier: Apache-2.0
#include "server/backend/native/native_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/log.h"
#include "server/backend/native/native_library.h"
#include "tensor/shape.h"

namespace flywheel::native {
namespace {

using config::DataType;

constexpr size_t kAlignment = 64;
constexpr uint32_t kMaxRank = 32;
constexpr uint64_t kMaxOutputBytes = uint64_t{1} << 40;

void write_log(int level, const char* text) {
  constexpr LogLevel kLevels[] = {LogLevel::kVerbose, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};
  log(kLevels[std::clamp(level, 0, 3)], "{}", text == nullptr ? "" : text);
}

const char* request_id(const flywheel_request* request) { return request->item.request->id.c_str(); }

uint32_t input_count(const flywheel_request* request) { return static_cast<uint32_t>(request->inputs.size()); }

const flywheel_tensor* input(const flywheel_request* request, uint32_t index) {
  return index < request->inputs.size() ? &request->inputs[index] : nullptr;
}

const flywheel_tensor* find_input(const flywheel_request* request, const char* name) {
  for (const flywheel_tensor& tensor : request->inputs) {
    if (name != nullptr && std::string_view(tensor.name) == name) return &tensor;
  }
  return nullptr;
}

int is_cancelled(const flywheel_request* request) { return request->item.request->is_cancelled() ? 1 : 0; }

int wants_output(const flywheel_request* request, const char* name) {
  if (name == nullptr) return 0;
  const std::vector<std::string>& wanted = request->item.request->requested_outputs;
  if (wanted.empty()) return request->config.find_output(name) != nullptr ? 1 : 0;
  return std::find(wanted.begin(), wanted.end(), name) != wanted.end() ? 1 : 0;
}

void fail(flywheel_request* request, int code, const char* message) {
  request->failure = to_status(code == FLYWHEEL_OK ? FLYWHEEL_INTERNAL : code, message == nullptr ? "" : message);
}

// The size that shape and type need; nothing for strings and for shapes that no tensor has.
std::optional<uint64_t> needed_bytes(DataType type, std::span<const int64_t> shape) {
  const std::optional<int64_t> elements = checked_element_count(shape);
  const uint64_t element_bytes = config::element_bytes(type);
  if (!elements || element_bytes == 0 || static_cast<uint64_t>(*elements) > kMaxOutputBytes / element_bytes)
    return std::nullopt;
  return static_cast<uint64_t>(*elements) * element_bytes;
}

void* add_output(flywheel_request* request, const char* name, uint32_t data_type, const int64_t* shape, uint32_t rank,
                 uint64_t size_bytes) {
  if (name == nullptr || (shape == nullptr && rank > 0) || rank > kMaxRank || size_bytes > kMaxOutputBytes ||
      data_type == 0 || data_type > static_cast<uint32_t>(DataType::kBf16) ||
      request->config.find_output(name) == nullptr) {
    return nullptr;
  }
  for (const schedule::OutputTensor& output : request->outputs) {
    if (output.name == name) return nullptr;
  }
  const auto type = static_cast<DataType>(data_type);
  if (type != DataType::kString && needed_bytes(type, {shape, rank}) != size_bytes) {
    request->failure = internal_error(
        fmt::format("output '{}' was given {} bytes, which its shape and data type do not make", name, size_bytes));
    return nullptr;
  }
  const size_t rounded = std::max<size_t>((size_bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  std::shared_ptr<std::byte> data(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)), std::free);
  if (data == nullptr) return nullptr;
  try {
    schedule::OutputTensor output;
    output.name = name;
    output.data_type = type;
    if (rank > 0) output.shape.assign(shape, shape + rank);
    output.bytes = {data.get(), static_cast<size_t>(size_bytes)};
    output.owner = data;
    request->outputs.push_back(std::move(output));
  } catch (const std::exception&) {
    return nullptr;
  }
  return data.get();
}

constexpr flywheel_host kHost = {
    .abi_version = FLYWHEEL_BACKEND_ABI_VERSION,
    .size_bytes = sizeof(flywheel_host),
    .log = write_log,
    .request_id = request_id,
    .input_count = input_count,
    .input = input,
    .find_input = find_input,
    .is_cancelled = is_cancelled,
    .wants_output = wants_output,
    .add_output = add_output,
    .fail = fail,
};

bool are_strings(const schedule::OutputTensor& output) {
  const std::optional<int64_t> elements = checked_element_count(output.shape);
  size_t at = 0;
  for (int64_t i = 0; elements && i < *elements; ++i) {
    uint32_t size = 0;
    if (output.bytes.size() - at < sizeof size) return false;
    std::memcpy(&size, output.bytes.data() + at, sizeof size);
    at += sizeof size;
    if (output.bytes.size() - at < size) return false;
    at += size;
  }
  return elements && at == output.bytes.size();
}

}  // namespace

const flywheel_host& host() { return kHost; }

}  // namespace flywheel::native

flywheel_request::flywheel_request(const flywheel::config::ModelConfig& model_config,
                                   flywheel::schedule::BatchItem& batch_item)
    : config(model_config), item(batch_item) {
  for (const flywheel::schedule::InputView& input : item.request->inputs) {
    if (input.data_type == flywheel::config::DataType::kInvalid) continue;  // an optional one that did not come
    inputs.push_back({input.name.c_str(), static_cast<uint32_t>(input.data_type),
                      static_cast<uint32_t>(input.shape.size()), input.shape.data(), input.bytes.data(),
                      input.bytes.size()});
  }
}

void flywheel_request::finish() {
  if (!failure.is_ok()) {
    item.status = failure;
    return;
  }
  auto take = [&](const std::string& name) {
    for (flywheel::schedule::OutputTensor& output : outputs) {
      if (output.name != name) continue;
      if (output.data_type == flywheel::config::DataType::kString && !flywheel::native::are_strings(output)) {
        item.status = flywheel::internal_error(
            fmt::format("output '{}' of model '{}' is not as many strings as its shape has", name, config.name));
        return;
      }
      item.outputs.push_back(std::move(output));
      return;
    }
    item.status = flywheel::internal_error(fmt::format("model '{}' gave no output '{}'", config.name, name));
  };
  const std::vector<std::string>& wanted = item.request->requested_outputs;
  for (const std::string& name : wanted) take(name);
  if (wanted.empty()) {
    for (const flywheel::config::TensorConfig& output : config.outputs) take(output.name);
  }
}
