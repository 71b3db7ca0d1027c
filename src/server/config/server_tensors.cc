// SPDX-License-Identifier: Apache-2.0
#include "server/config/server_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "server/config/config_reader.h"

namespace flywheel::config {
namespace {

const TensorDescription* find(const std::vector<TensorDescription>& tensors, std::string_view name) {
  for (const TensorDescription& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

void remove(std::vector<TensorDescription>& tensors, std::string_view name) {
  std::erase_if(tensors, [&](const TensorDescription& tensor) { return tensor.name == name; });
}

// Backends that do not know their model's tensors describe none.
Status check(const std::vector<TensorDescription>& tensors, const std::string& name, DataType type,
             const std::vector<int64_t>* dims, bool batched, std::string_view what, const std::string& model) {
  if (tensors.empty()) return Status::ok();
  const TensorDescription* found = find(tensors, name);
  if (found == nullptr)
    return invalid_argument(fmt::format("unable to load model '{}': the model has no {} '{}'", model, what, name));
  if (found->data_type != type)
    return invalid_argument(
        fmt::format("unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}",
                    model, config_name(type), what, name, config_name(found->data_type)));
  if (dims == nullptr) return Status::ok();
  std::vector<int64_t> shape = *dims;
  if (batched) shape.insert(shape.begin(), -1);
  bool same = shape.size() == found->shape.size();
  for (size_t i = batched ? 1 : 0; same && i < shape.size(); ++i)
    same = found->shape[i] == -1 || found->shape[i] == shape[i];
  if (same) return Status::ok();
  return invalid_argument(
      fmt::format("unable to load model '{}', {} '{}': the model expects shape [{}] but the model configuration "
                  "specifies shape [{}]",
                  model, what, name, fmt::join(found->shape, ","), fmt::join(shape, ",")));
}

}  // namespace

ModelConfig with_server_tensors(const ModelConfig& config) {
  ModelConfig extended = config;
  if (!config.sequence_batching) return extended;
  for (const SequenceControl& control : config.sequence_batching->controls) {
    TensorConfig& tensor = extended.inputs.emplace_back();
    tensor.name = control.input;
    tensor.data_type = control.data_type;
    tensor.dims = {1};
  }
  for (const SequenceState& state : config.sequence_batching->states) {
    TensorConfig& input = extended.inputs.emplace_back();
    input.name = state.input;
    input.data_type = state.data_type;
    input.dims = state.dims;
    if (config.find_output(state.output) != nullptr) continue;
    TensorConfig& output = extended.outputs.emplace_back();
    output.name = state.output;
    output.data_type = state.data_type;
    output.dims = state.dims;
  }
  return extended;
}

Result<ModelDescription> without_server_tensors(const inference::ModelConfig& message, const ModelDescription& model) {
  ModelDescription visible = model;
  const bool batched = message.max_batch_size() > 0;
  const std::string& name = message.name();
  const ModelConfig config = read_message(std::make_shared<inference::ModelConfig>(message));
  const auto is_output = [&](const std::string& output) { return config.find_output(output) != nullptr; };
  if (config.sequence_batching) {
    const std::vector<int64_t> kOne{1};
    for (const SequenceControl& control : config.sequence_batching->controls) {
      FW_RETURN_IF_ERROR(
          check(model.inputs, control.input, control.data_type, &kOne, batched, "sequence control input", name));
      remove(visible.inputs, control.input);
    }
    for (const SequenceState& state : config.sequence_batching->states) {
      FW_RETURN_IF_ERROR(check(model.inputs, state.input, state.data_type, &state.dims, batched, "state input", name));
      FW_RETURN_IF_ERROR(
          check(model.outputs, state.output, state.data_type, &state.dims, batched, "state output", name));
      remove(visible.inputs, state.input);
      if (!is_output(state.output)) remove(visible.outputs, state.output);
    }
  }
  for (const BatchInput& input : config.batch_inputs) {
    for (const std::string& target : input.targets) {
      FW_RETURN_IF_ERROR(check(model.inputs, target, input.data_type, nullptr, batched, "batch input", name));
      remove(visible.inputs, target);
    }
  }
  return visible;
}

}  // namespace flywheel::config
