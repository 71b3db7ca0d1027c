// SPDX-License-Identifier: Apache-2.0
// Fills in what config.pbtxt left out, from the model and by convention, and holds the result against the model.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "server/config/config_reader.h"
#include "server/config/parse_config.h"
#include "server/config/server_tensors.h"

namespace flywheel::config {
namespace {

using Message = inference::ModelConfig;
using Dims = google::protobuf::RepeatedField<int64_t>;

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

template <class Io>
const Dims& model_dims(const Io& io) {
  return io.has_reshape() ? io.reshape().shape() : io.dims();
}

const TensorDescription* find(const std::vector<TensorDescription>& tensors, std::string_view name) {
  for (const TensorDescription& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

// A text that gives tensors but no max_batch_size has decided all the same: by whether its dims include the batch.
template <class Ios>
bool dims_include_batch(const Ios& ios, const std::vector<TensorDescription>& tensors) {
  for (const auto& io : ios) {
    const TensorDescription* tensor = find(tensors, io.name());
    if (tensor != nullptr && !io.dims().empty() && static_cast<size_t>(model_dims(io).size()) == tensor->shape.size())
      return true;
  }
  return false;
}

Status complete_max_batch_size(Message& message, bool given, const ModelDescription& model, bool auto_complete) {
  const int32_t asked = message.max_batch_size();
  if (asked < 0) return Status::ok();  // validation says so
  // Where rows are laid end to end, the model's leading dimensions say nothing about how many there may be.
  const bool ragged = std::any_of(message.input().begin(), message.input().end(),
                                  [](const auto& io) { return io.allow_ragged_batch(); });
  if (ragged && asked > 0) return Status::ok();
  if (asked > 0 && model.max_batch_size == 0)
    return invalid_argument(fmt::format(
        "model '{}' does not support batching while non-zero max_batch_size is specified: set 'max_batch_size: 0' with "
        "whole shapes as dims, or build the model with a dynamic leading dimension",
        message.name()));
  if (asked > model.max_batch_size)
    return invalid_argument(fmt::format(
        "'max_batch_size' is {} for {}, but the model takes at most {}: lower it, or build the engine with a "
        "larger profile",
        asked, message.name(), model.max_batch_size));
  if (given || !auto_complete || model.max_batch_size == 0) return Status::ok();
  if (!dims_include_batch(message.input(), model.inputs) && !dims_include_batch(message.output(), model.outputs))
    message.set_max_batch_size(model.max_batch_size);
  return Status::ok();
}

// The tensor's shape as `dims` give it.
std::vector<int64_t> described_dims(const TensorDescription& tensor, const Message& message) {
  auto begin = tensor.shape.begin();
  if (message.max_batch_size() > 0 && begin != tensor.shape.end()) ++begin;
  return {begin, tensor.shape.end()};
}

template <class Io>
void complete_tensor(Io& io, const TensorDescription& tensor, const Message& message) {
  io.set_name(tensor.name);
  if (io.data_type() == inference::TYPE_INVALID) io.set_data_type(static_cast<inference::DataType>(tensor.data_type));
  if (!io.dims().empty()) return;
  const std::vector<int64_t> dims = described_dims(tensor, message);
  if (dims.empty() && !io.has_reshape()) {
    // Dims cannot be empty: a scalar for each row is given as one element that the model sees without its dimension.
    io.add_dims(1);
    io.mutable_reshape();
  } else if (!io.has_reshape()) {
    for (int64_t dim : dims) io.add_dims(dim);
  }
}

template <class Io>
Status check_tensor(const Io& io, const TensorDescription& tensor, const Message& message, std::string_view kind) {
  const auto type = static_cast<DataType>(io.data_type());
  if (type != tensor.data_type)
    return invalid_argument(
        fmt::format("unable to load model '{}', configuration expects datatype {} for {} '{}', model provides {}",
                    message.name(), config_name(type), kind, io.name(), config_name(tensor.data_type)));
  std::vector<int64_t> shape;
  if (message.max_batch_size() > 0) shape.push_back(-1);
  const Dims& dims = model_dims(io);
  shape.insert(shape.end(), dims.begin(), dims.end());
  bool same = shape.size() == tensor.shape.size();
  // The batch dimension has been settled with max_batch_size. A fixed size may stand where the model takes any.
  for (size_t i = message.max_batch_size() > 0 ? 1 : 0; same && i < shape.size(); ++i)
    same = tensor.shape[i] == -1 || tensor.shape[i] == shape[i];
  if (same) return Status::ok();
  return invalid_argument(fmt::format(
      "unable to load model '{}', {} '{}': the model expects shape {} but the model configuration specifies "
      "shape {}{}",
      message.name(), kind, io.name(), shape_text(tensor.shape), shape_text(shape),
      message.max_batch_size() > 0 ? " (dims leave out the batch dimension, as max_batch_size is not 0)" : ""));
}

template <class Ios>
Status check_allowed(const Ios& ios, const std::vector<TensorDescription>& tensors, std::string_view kind,
                     const Message& message) {
  for (const auto& io : ios) {
    if (find(tensors, io.name()) != nullptr) continue;
    std::vector<std::string_view> allowed;
    for (const TensorDescription& tensor : tensors) allowed.push_back(tensor.name);
    return invalid_argument(fmt::format("unexpected inference {} '{}' for model '{}', allowed {}s are: {}", kind,
                                        io.name(), message.name(), kind, fmt::join(allowed, ", ")));
  }
  return Status::ok();
}

// An engine needs every input; of its outputs, a text that names some hides the others.
template <class Ios>
Status complete_tensors(Ios* ios, const std::vector<TensorDescription>& tensors, std::string_view kind,
                        Message& message, bool auto_complete) {
  FW_RETURN_IF_ERROR(check_allowed(*ios, tensors, kind, message));
  const bool all = kind == "input" || ios->empty();
  if (!auto_complete && (ios->empty() || (all && ios->size() < static_cast<int>(tensors.size()))))
    return invalid_argument(
        fmt::format("must specify all {}s of model '{}' in its configuration: it has {}, {} are given", kind,
                    message.name(), tensors.size(), ios->size()));
  if (!auto_complete) return Status::ok();
  for (auto& io : *ios) complete_tensor(io, *find(tensors, io.name()), message);
  for (const TensorDescription& tensor : tensors) {
    const bool present =
        std::any_of(ios->begin(), ios->end(), [&](const auto& io) { return io.name() == tensor.name; });
    if (all && !present) complete_tensor(*ios->Add(), tensor, message);
  }
  return Status::ok();
}

void complete_conventions(Message& message, const ModelDescription& model, bool auto_complete) {
  if (message.platform().empty()) message.set_platform(model.platform);
  if (message.backend().empty()) message.set_backend(model.backend);
  if (message.default_model_filename().empty()) message.set_default_model_filename(model.model_filename);
  if (auto_complete && model.adds_dynamic_batching && message.max_batch_size() > 1 &&
      message.scheduling_choice_case() == Message::SCHEDULING_CHOICE_NOT_SET)
    message.mutable_dynamic_batching();
  if (message.has_dynamic_batching() && message.max_batch_size() > 0 &&
      message.dynamic_batching().preferred_batch_size().empty())
    message.mutable_dynamic_batching()->add_preferred_batch_size(message.max_batch_size());
  if (message.has_sequence_batching()) {
    auto& batching = *message.mutable_sequence_batching();
    constexpr uint64_t kIdleUs = 1'000'000;
    if (batching.max_sequence_idle_microseconds() == 0) batching.set_max_sequence_idle_microseconds(kIdleUs);
    if (batching.has_oldest() && message.max_batch_size() > 0 && batching.oldest().preferred_batch_size().empty())
      batching.mutable_oldest()->add_preferred_batch_size(message.max_batch_size());
    if (batching.strategy_choice_case() == inference::ModelSequenceBatching::STRATEGY_CHOICE_NOT_SET)
      batching.mutable_direct();
  }
  auto* optimization = message.mutable_optimization();
  if (!optimization->has_input_pinned_memory()) optimization->mutable_input_pinned_memory()->set_enable(true);
  if (!optimization->has_output_pinned_memory()) optimization->mutable_output_pinned_memory()->set_enable(true);

  if (message.instance_group().empty()) message.add_instance_group()->set_name(message.name());
  for (int i = 0; i < message.instance_group_size(); ++i) {
    auto* group = message.mutable_instance_group(i);
    if (group->name().empty()) group->set_name(fmt::format("{}_{}", message.name(), i));
    if (group->count() == 0) group->set_count(1);
    if (group->kind() == inference::ModelInstanceGroup::KIND_AUTO) {
      // Automatic means the listed GPUs if they are all there, and the CPU otherwise.
      group->set_kind(inference::ModelInstanceGroup::KIND_CPU);
      group->clear_gpus();
    }
  }
}

}  // namespace

Result<ModelConfig> complete_config(const ModelConfig& parsed, const ModelDescription& model,
                                    const CompletionOptions& options) {
  auto message = std::make_shared<Message>(*parsed.message);
  FW_RETURN_IF_ERROR(complete_max_batch_size(*message, parsed.max_batch_size_given, model, options.auto_complete));
  FW_ASSIGN_OR_RETURN(const ModelDescription visible, without_server_tensors(*message, model));
  FW_RETURN_IF_ERROR(
      complete_tensors(message->mutable_input(), visible.inputs, "input", *message, options.auto_complete));
  FW_RETURN_IF_ERROR(
      complete_tensors(message->mutable_output(), visible.outputs, "output", *message, options.auto_complete));
  complete_conventions(*message, model, options.auto_complete);
  FW_RETURN_IF_ERROR(validate_message(*message));
  for (const auto& io : message->input()) {
    if (io.allow_ragged_batch() && find(model.inputs, io.name())->shape.size() == 1) continue;  // laid end to end
    FW_RETURN_IF_ERROR(check_tensor(io, *find(model.inputs, io.name()), *message, "input"));
  }
  const auto is_scattered = [&](const std::string& output) {
    return std::any_of(message->batch_output().begin(), message->batch_output().end(), [&](const auto& io) {
      return std::find(io.target_name().begin(), io.target_name().end(), output) != io.target_name().end();
    });
  };
  for (const auto& io : message->output()) {
    if (is_scattered(io.name())) continue;
    FW_RETURN_IF_ERROR(check_tensor(io, *find(model.outputs, io.name()), *message, "output"));
  }
  return read_message(std::move(message));
}

}  // namespace flywheel::config
