// SPDX-License-Identifier: Apache-2.0
#include "server/repository/request_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "tensor/shape.h"

namespace flywheel::repository {
namespace {

using config::ModelConfig;
using config::TensorConfig;
using schedule::InferRequest;
using schedule::InputView;

constexpr std::string_view kBatchNote =
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";

std::string quoted_names(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ",'" : "'") + name + "'";
  return text + "]";
}

// Which inputs came, and their order: the instance finds them by the configuration's position.
Status order_inputs(const ModelConfig& config, InferRequest& request) {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (request.inputs[i].name == request.inputs[j].name) {
        return invalid_argument(fmt::format("input '{}' already exists in request", request.inputs[i].name));
      }
    }
  }
  std::vector<std::string> got, missing;
  size_t required = 0;
  for (const TensorConfig& tensor : config.inputs) {
    if (tensor.optional) continue;
    ++required;
    const bool came = std::any_of(request.inputs.begin(), request.inputs.end(),
                                  [&](const InputView& input) { return input.name == tensor.name; });
    if (!came) missing.push_back(tensor.name);
  }
  const size_t count = request.inputs.size();
  if (count > config.inputs.size() || count < required || (required < config.inputs.size() && !missing.empty())) {
    for (const InputView& input : request.inputs) got.push_back(input.name);
    std::sort(got.begin(), got.end());
    const std::string expected =
        required == config.inputs.size()
            ? fmt::format("expected {} inputs", required)
            : fmt::format("expected number of inputs between {} and {}", required, config.inputs.size());
    return invalid_argument(
        fmt::format("{} but got {} inputs for model '{}'. Got input(s) {}, but missing required input(s) {}. Please "
                    "provide all required input(s).",
                    expected, count, config.name, quoted_names(got), quoted_names(missing)));
  }
  for (const InputView& input : request.inputs) {
    if (config.find_input(input.name) != nullptr) continue;
    return invalid_argument(fmt::format("unexpected inference input '{}' for model '{}'", input.name, config.name));
  }
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    size_t at = i;
    while (at < request.inputs.size() && request.inputs[at].name != config.inputs[i].name) ++at;
    if (at == request.inputs.size()) {  // an optional one that did not come has an empty place
      request.inputs.push_back({config.inputs[i].name, config::DataType::kInvalid, {}, {}});
    }
    if (at != i) std::swap(request.inputs[i], request.inputs[at]);
  }
  return {};
}

Status check_batch_size(const ModelConfig& config, InferRequest& request) {
  request.batch_size = 1;
  if (config.max_batch_size == 0) return {};
  std::optional<int64_t> batch_size;
  for (const InputView& input : request.inputs) {
    if (input.data_type == config::DataType::kInvalid) continue;
    if (input.shape.empty()) {
      return invalid_argument(
          fmt::format("input '{}' has no shape but model requires batch dimension for '{}'", input.name, config.name));
    }
    if (batch_size && *batch_size != input.shape[0]) {
      return invalid_argument(
          fmt::format("input '{}' batch size does not match other inputs for '{}'", input.name, config.name));
    }
    batch_size = input.shape[0];
  }
  request.batch_size = batch_size.value_or(1);
  constexpr int64_t kMaxParts = 4096;
  const int64_t parts = config.batching_options.splits_large_requests ? kMaxParts : 1;
  if (request.batch_size > config.max_batch_size * parts) {
    return invalid_argument(
        fmt::format("inference request batch-size must be <= {} for '{}'", config.max_batch_size * parts, config.name));
  }
  if (request.batch_size < 1) {
    return invalid_argument(fmt::format("inference request batch-size must be >= 1 for '{}'", config.name));
  }
  return {};
}

// As many strings, each behind its length, as the shape has elements.
Status check_strings(const InputView& input, int64_t elements) {
  std::span<const std::byte> rest = input.bytes;
  int64_t count = 0;
  for (; !rest.empty(); ++count) {
    uint32_t size = 0;
    if (rest.size() < sizeof size) {
      return invalid_argument(
          fmt::format("incomplete string length indicator for inference input '{}', expecting {} bytes but only {} "
                      "bytes available.",
                      input.name, sizeof size, rest.size()));
    }
    std::memcpy(&size, rest.data(), sizeof size);
    rest = rest.subspan(sizeof size);
    if (rest.size() < size) {
      return invalid_argument(fmt::format(
          "incomplete string data for inference input '{}', expecting string of length {} but only {} bytes available.",
          input.name, size, rest.size()));
    }
    rest = rest.subspan(size);
  }
  if (count == elements) return {};
  return invalid_argument(fmt::format("unexpected number of string elements {} for inference input '{}', expecting {}",
                                      count, input.name, elements));
}

Status check_input(const ModelConfig& config, const TensorConfig& tensor, const InputView& input) {
  if (input.data_type == config::DataType::kInvalid && tensor.optional) return {};
  if (input.data_type != tensor.data_type) {
    return invalid_argument(fmt::format("inference input '{}' data-type is '{}', but model '{}' expects '{}'",
                                        input.name, config::protocol_name(input.data_type), config.name,
                                        config::protocol_name(tensor.data_type)));
  }
  const bool batched = config.max_batch_size > 0;
  const std::span<const int64_t> dims = std::span(input.shape).subspan(batched ? 1 : 0);
  bool matches = dims.size() == tensor.dims.size();
  for (size_t i = 0; i < dims.size() && matches; ++i) {
    if (dims[i] < 0) {
      return invalid_argument(
          fmt::format("All input dimensions should be specified for input '{}' for model '{}', got {}", input.name,
                      config.name, shape_text(input.shape)));
    }
    matches = tensor.dims[i] == -1 || tensor.dims[i] == dims[i];
  }
  if (!matches) {
    std::vector<int64_t> expected = tensor.dims;
    if (batched) expected.insert(expected.begin(), -1);
    return invalid_argument(fmt::format("unexpected shape for input '{}' for model '{}'. Expected {}, got {}. {}",
                                        input.name, config.name, shape_text(expected), shape_text(input.shape),
                                        batched ? kBatchNote : std::string_view()));
  }
  const std::optional<int64_t> elements = checked_element_count(input.shape);
  const int64_t element_bytes = static_cast<int64_t>(config::element_bytes(tensor.data_type));
  int64_t expected_bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, element_bytes, &expected_bytes)) {
    return invalid_argument(
        fmt::format("the shape {} of input '{}' for model '{}' has more elements than any tensor can",
                    shape_text(input.shape), input.name, config.name));
  }
  if (tensor.data_type == config::DataType::kString) return check_strings(input, *elements);
  if (static_cast<uint64_t>(expected_bytes) != input.bytes.size()) {
    return invalid_argument(fmt::format("input byte size mismatch for input '{}' for model '{}'. Expected {}, got {}",
                                        input.name, config.name, expected_bytes, input.bytes.size()));
  }
  return {};
}

Status check_outputs(const ModelConfig& config, const InferRequest& request) {
  const std::vector<std::string>& wanted = request.requested_outputs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::find(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(i), wanted[i]) !=
        wanted.begin() + static_cast<std::ptrdiff_t>(i)) {
      return invalid_argument(fmt::format("output '{}' already exists in request", wanted[i]));
    }
    if (config.find_output(wanted[i]) == nullptr) {
      return invalid_argument(fmt::format("unexpected inference output '{}' for model '{}'", wanted[i], config.name));
    }
  }
  return {};
}

Status check(const ModelConfig& config, InferRequest& request) {
  FW_RETURN_IF_ERROR(check_outputs(config, request));
  FW_RETURN_IF_ERROR(order_inputs(config, request));
  FW_RETURN_IF_ERROR(check_batch_size(config, request));
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    FW_RETURN_IF_ERROR(check_input(config, config.inputs[i], request.inputs[i]));
  }
  return {};
}

Status with_prefix(const Status& status, std::string_view id) {
  if (status.is_ok()) return {};
  // Triton's texts for names that a model does not have are without the request's id.
  if (status.message().starts_with("unexpected inference ")) return status;
  return {status.code(), schedule::request_prefix(id) + status.message()};
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

Status check_request(const ModelConfig& config, InferRequest& request) {
  FW_RETURN_IF_ERROR(with_prefix(check(config, request), request.id));
  const bool same = std::all_of(config.inputs.begin(), config.inputs.end(), [](const TensorConfig& tensor) {
    const bool fixed = std::find(tensor.dims.begin(), tensor.dims.end(), -1) == tensor.dims.end();
    return (fixed || tensor.allow_ragged) && !tensor.optional;
  });
  if (same) return {};
  std::vector<InputView> compared;  // ragged inputs need not be equal in a batch
  const bool any_ragged = std::any_of(config.inputs.begin(), config.inputs.end(),
                                      [](const TensorConfig& tensor) { return tensor.allow_ragged; });
  for (size_t i = 0; any_ragged && i < config.inputs.size(); ++i) {
    if (!config.inputs[i].allow_ragged) compared.push_back(request.inputs[i]);
  }
  request.signature = schedule::shape_signature(any_ragged ? compared : request.inputs, config.max_batch_size > 0);
  return {};
}

Status add_raw_input(const ModelConfig& config, std::span<const std::byte> bytes, InferRequest& request) {
  if (config.inputs.size() != 1) {
    return invalid_argument(fmt::format(
        "{}Raw request must only have 1 input (found 1) to be deduced but got {} inputs in '{}' model configuration",
        schedule::request_prefix(request.id), config.inputs.size(), config.name));
  }
  const TensorConfig& tensor = config.inputs[0];
  InputView input{tensor.name, tensor.data_type, tensor.dims, bytes};
  std::optional<size_t> variable;
  int64_t known = 1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] != -1) {
      if (__builtin_mul_overflow(known, tensor.dims[i], &known)) known = 0;
    } else if (variable) {
      return invalid_argument(
          fmt::format("{}The shape of the raw input '{}' can not be deduced because there are more than one "
                      "variable-sized dimension",
                      schedule::request_prefix(request.id), tensor.name));
    } else {
      variable = i;
    }
  }
  const size_t row_bytes = static_cast<size_t>(known) * config::element_bytes(tensor.data_type);
  if (variable) input.shape[*variable] = row_bytes == 0 ? 0 : static_cast<int64_t>(bytes.size() / row_bytes);
  if (config.max_batch_size > 0) input.shape.insert(input.shape.begin(), 1);
  request.inputs.push_back(std::move(input));
  return {};
}

}  // namespace flywheel::repository
