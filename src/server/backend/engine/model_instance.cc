// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/model_instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "server/backend/engine/batch_inputs.h"
#include "server/backend/engine/engine_description.h"
#include "server/schedule/timeline.h"
#include "tensor/shape.h"

namespace flywheel::engines {
namespace {

using schedule::BatchItem;

std::optional<config::BatchInput> find_computed(const config::ModelConfig& config, std::string_view target) {
  for (const config::BatchInput& input : config.batch_inputs) {
    if (std::find(input.targets.begin(), input.targets.end(), target) != input.targets.end()) return input;
  }
  return std::nullopt;
}

bool is_aligned(const void* data, size_t alignment) { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }

}  // namespace

Result<std::unique_ptr<ModelInstance>> ModelInstance::create(std::shared_ptr<const Engine> engine,
                                                             const config::ModelConfig& config, int threads,
                                                             std::shared_ptr<BufferPool> pool) {
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context, engine->create_context({.threads = threads}));
  std::unique_ptr<ModelInstance> instance(
      new ModelInstance(config.name, std::move(context), config.max_batch_size > 0, std::move(pool)));
  for (const TensorInfo& input : engine->inputs()) {
    const config::TensorConfig* tensor = config.find_input(input.name);
    std::optional<config::BatchInput> computed = find_computed(config, input.name);
    if (computed) tensor = config.find_input(computed->source);
    if (tensor == nullptr) {
      return internal_error(
          fmt::format("the configuration of model '{}' lacks the engine's input '{}'", config.name, input.name));
    }
    InputBinding binding;
    binding.config_index = static_cast<size_t>(tensor - config.inputs.data());
    binding.client_dims = tensor->dims;
    binding.model_dims = tensor->model_dims();
    binding.element_bytes = dtype_size(input.dtype);
    binding.ragged = tensor->allow_ragged && config.max_batch_size > 0 && !computed && input.dims.size() == 1;
    binding.computed = std::move(computed);
    instance->inputs_.push_back(std::move(binding));
  }
  for (const TensorInfo& output : engine->outputs()) {
    OutputBinding binding;
    binding.name = output.name;
    binding.data_type = to_data_type(output.dtype);
    binding.element_bytes = dtype_size(output.dtype);
    if (const config::TensorConfig* tensor = config.find_output(output.name); tensor != nullptr) {
      binding.offered = true;
      binding.client_dims = tensor->dims;
      binding.model_dims = tensor->model_dims();
      for (const config::BatchOutput& cut : config.batch_outputs) {
        if (std::find(cut.targets.begin(), cut.targets.end(), output.name) == cut.targets.end()) continue;
        binding.scattered_by = static_cast<size_t>(config.find_input(cut.source) - config.inputs.data());
      }
    }
    instance->outputs_.push_back(std::move(binding));
  }
  for (const config::TensorConfig& output : config.outputs) {
    const std::optional<int> index = [&]() -> std::optional<int> {
      for (size_t i = 0; i < instance->outputs_.size(); ++i) {
        if (instance->outputs_[i].name == output.name) return static_cast<int>(i);
      }
      return std::nullopt;
    }();
    if (!index)
      return internal_error(fmt::format("the engine of model '{}' lacks the output '{}'", config.name, output.name));
    instance->offered_.push_back(static_cast<size_t>(*index));
  }
  instance->input_pointers_.resize(instance->inputs_.size());
  instance->output_pointers_.resize(instance->outputs_.size());
  return instance;
}

Status ModelInstance::execute(schedule::Batch& batch) {
  const Status status = run(batch.items, batch.batch_size, batch);
  if (status.code() != Code::kInvalidArgument || batch.items.size() <= 1) return status;
  // Something about one request's data. The others are not to suffer from it: each on its own.
  for (BatchItem& item : batch.items) item.status = run({&item, 1}, item.request->batch_size, batch);
  return {};
}

Status ModelInstance::run(std::span<BatchItem> items, int64_t rows, schedule::Batch& batch) {
  for (size_t i = 0; i < inputs_.size(); ++i) FW_RETURN_IF_ERROR(gather(inputs_[i], static_cast<int>(i), items, rows));
  batch.input_done_ns = schedule::monotonic_now_ns();
  FW_RETURN_IF_ERROR(context_->bind());
  for (size_t i = 0; i < outputs_.size(); ++i)
    FW_RETURN_IF_ERROR(prepare_output(outputs_[i], static_cast<int>(i), rows));
  FW_RETURN_IF_ERROR(context_->run(input_pointers_, output_pointers_));
  batch.compute_done_ns = schedule::monotonic_now_ns();
  FW_RETURN_IF_ERROR(scatter(items));
  for (OutputBinding& output : outputs_) output.data.reset();
  return {};
}

Status ModelInstance::gather(InputBinding& binding, int engine_input, std::span<const BatchItem> items, int64_t rows) {
  if (binding.computed) return compute(binding, engine_input, items);
  const schedule::InputView& first = items[0].request->inputs[binding.config_index];
  std::vector<int64_t> dims;
  if (binding.ragged) {
    size_t bytes = 0;
    for (const BatchItem& item : items) bytes += item.request->inputs[binding.config_index].bytes.size();
    dims = {static_cast<int64_t>(bytes / std::max<size_t>(binding.element_bytes, 1))};
  } else if (batched_) {
    dims = map_dims(binding.client_dims, binding.model_dims, std::span(first.shape).subspan(1));
    dims.insert(dims.begin(), rows);
  } else {
    dims = map_dims(binding.client_dims, binding.model_dims, first.shape);
  }
  FW_RETURN_IF_ERROR(context_->set_shape(engine_input, dims));
  const std::optional<int64_t> elements = checked_element_count(dims);
  if (!elements) return invalid_argument(fmt::format("the shape of an input of model '{}' overflows", name_));
  const size_t wanted = static_cast<size_t>(*elements) * binding.element_bytes;

  if (items.size() == 1 && is_aligned(first.bytes.data(), binding.element_bytes)) {
    if (first.bytes.size() != wanted) {
      return internal_error(fmt::format("input '{}' of model '{}' has {} bytes where the engine reads {}", first.name,
                                        name_, first.bytes.size(), wanted));
    }
    input_pointers_[static_cast<size_t>(engine_input)] = first.bytes.data();
    return {};
  }
  FW_RETURN_IF_ERROR(copy_rows(binding, items, wanted));
  input_pointers_[static_cast<size_t>(engine_input)] = binding.staging.data();
  return {};
}

Status ModelInstance::copy_rows(InputBinding& binding, std::span<const BatchItem> items, size_t wanted) {
  if (binding.staging.size_bytes() < wanted) {
    FW_ASSIGN_OR_RETURN(binding.staging, AlignedBuffer::allocate(wanted, "a model's batch input"));
  }
  size_t filled = 0;
  for (const BatchItem& item : items) {
    const std::span<const std::byte> bytes = item.request->inputs[binding.config_index].bytes;
    if (bytes.size() > wanted - filled) {
      return internal_error(fmt::format("the inputs of a batch of model '{}' are larger than the batch", name_));
    }
    if (!bytes.empty()) std::memcpy(binding.staging.data() + filled, bytes.data(), bytes.size());
    filled += bytes.size();
  }
  if (filled != wanted)
    return internal_error(fmt::format("the inputs of a batch of model '{}' are smaller than the batch", name_));
  return {};
}

Status ModelInstance::compute(InputBinding& binding, int engine_input, std::span<const BatchItem> items) {
  FW_ASSIGN_OR_RETURN(const ComputedInput computed,
                      compute_batch_input(*binding.computed, binding.config_index, items));
  FW_RETURN_IF_ERROR(context_->set_shape(engine_input, computed.shape));
  const size_t wanted = computed.bytes.size();
  if (binding.staging.size_bytes() < wanted) {
    FW_ASSIGN_OR_RETURN(binding.staging, AlignedBuffer::allocate(wanted, "a model's batch input"));
  }
  if (wanted > 0) std::memcpy(binding.staging.data(), computed.bytes.data(), wanted);
  input_pointers_[static_cast<size_t>(engine_input)] = binding.staging.data();
  return {};
}

Status ModelInstance::prepare_output(OutputBinding& binding, int engine_output, int64_t rows) {
  const std::span<const int64_t> dims = context_->output_dims(engine_output);
  const size_t size = static_cast<size_t>(context_->output_bytes(engine_output));
  binding.data = pool_->take(size);
  if (binding.data == nullptr) {
    return out_of_memory(fmt::format("no memory for {} bytes of output '{}' of model '{}'", size, binding.name, name_));
  }
  output_pointers_[static_cast<size_t>(engine_output)] = binding.data.get();
  if (!binding.offered) return {};
  if (binding.scattered_by) {
    binding.row_bytes = size;  // of all rows
    return {};
  }
  if (batched_) {
    if (dims.empty() || dims[0] != rows) {
      return internal_error(fmt::format("output '{}' of model '{}' has shape {} for a batch of {}", binding.name, name_,
                                        dims_to_string(dims), rows));
    }
    binding.client_shape = map_dims(binding.model_dims, binding.client_dims, dims.subspan(1));
    binding.client_shape.insert(binding.client_shape.begin(), rows);
  } else {
    binding.client_shape = map_dims(binding.model_dims, binding.client_dims, dims);
  }
  binding.row_bytes = size / static_cast<size_t>(std::max<int64_t>(rows, 1));
  return {};
}

Status ModelInstance::scatter(std::span<BatchItem> items) {
  int64_t row = 0;
  std::vector<size_t> cut(outputs_.size());  // bytes of scattered outputs that earlier requests got
  for (BatchItem& item : items) {
    const int64_t rows = item.request->batch_size;
    Status status;
    auto add = [&](const OutputBinding& binding) {
      if (binding.scattered_by) {
        size_t& at = cut[static_cast<size_t>(&binding - outputs_.data())];
        status = add_cut(binding.data, binding.name, binding.data_type, binding.element_bytes, binding.row_bytes,
                         item.request->inputs[*binding.scattered_by].shape, at, item.outputs);
        return;
      }
      schedule::OutputTensor output;
      output.name = binding.name;
      output.data_type = binding.data_type;
      output.shape = binding.client_shape;
      if (batched_) output.shape[0] = rows;
      output.bytes = {binding.data.get() + static_cast<size_t>(row) * binding.row_bytes,
                      static_cast<size_t>(rows) * binding.row_bytes};
      output.owner = binding.data;
      item.outputs.push_back(std::move(output));
    };
    const std::vector<std::string>& wanted = item.request->requested_outputs;
    item.outputs.reserve(wanted.empty() ? offered_.size() : wanted.size());
    if (wanted.empty()) {
      for (size_t index : offered_) add(outputs_[index]);
    }
    for (const std::string& name : wanted) {
      for (size_t index : offered_) {
        if (outputs_[index].name == name) add(outputs_[index]);
      }
    }
    FW_RETURN_IF_ERROR(status);
    row += rows;
  }
  return {};
}

}  // namespace flywheel::engines
