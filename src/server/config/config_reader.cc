// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_reader.h"

#include <algorithm>
#include <cstring>

namespace flywheel::config {
namespace {

DataType read_type(inference::DataType type) {
  return inference::DataType_IsValid(type) ? static_cast<DataType>(type) : DataType::kInvalid;
}

template <class T>
std::vector<int64_t> read_dims(const T& dims) {
  return {dims.begin(), dims.end()};
}

template <class Io>
TensorConfig read_tensor(const Io& io) {
  TensorConfig tensor;
  tensor.name = io.name();
  tensor.data_type = read_type(io.data_type());
  tensor.dims = read_dims(io.dims());
  if (io.has_reshape()) tensor.reshape = read_dims(io.reshape().shape());
  return tensor;
}

VersionPolicy read_version_policy(const inference::ModelVersionPolicy& message) {
  VersionPolicy policy;
  if (message.has_all()) {
    policy.kind = VersionPolicy::Kind::kAll;
  } else if (message.has_specific()) {
    policy.kind = VersionPolicy::Kind::kSpecific;
    policy.versions = read_dims(message.specific().versions());
  } else if (message.has_latest()) {
    policy.num_versions = message.latest().num_versions();
  }
  return policy;
}

QueuePolicy read_queue_policy(const inference::ModelQueuePolicy& message) {
  QueuePolicy policy;
  policy.timeout_action =
      message.timeout_action() == inference::ModelQueuePolicy::DELAY ? TimeoutAction::kDelay : TimeoutAction::kReject;
  policy.default_timeout_us = message.default_timeout_microseconds();
  policy.allow_timeout_override = message.allow_timeout_override();
  policy.max_queue_size = message.max_queue_size();
  return policy;
}

DynamicBatching read_dynamic_batching(const inference::ModelDynamicBatching& message) {
  DynamicBatching batching;
  auto& sizes = batching.preferred_batch_sizes;
  sizes.assign(message.preferred_batch_size().begin(), message.preferred_batch_size().end());
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  batching.max_queue_delay_us = message.max_queue_delay_microseconds();
  batching.preserve_ordering = message.preserve_ordering();
  batching.priority_levels = message.priority_levels();
  batching.default_priority_level = message.default_priority_level();
  batching.default_queue_policy = read_queue_policy(message.default_queue_policy());
  for (const auto& [level, policy] : message.priority_queue_policy())
    batching.priority_queue_policy[level] = read_queue_policy(policy);
  return batching;
}

template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

SequenceControl read_control(const std::string& input, const inference::ModelSequenceBatching::Control& message) {
  using Control = inference::ModelSequenceBatching::Control;
  SequenceControl control;
  control.input = input;
  switch (message.kind()) {
    case Control::CONTROL_SEQUENCE_READY: control.kind = SequenceControl::Kind::kReady; break;
    case Control::CONTROL_SEQUENCE_END: control.kind = SequenceControl::Kind::kEnd; break;
    case Control::CONTROL_SEQUENCE_CORRID: control.kind = SequenceControl::Kind::kCorrelationId; break;
    default: control.kind = SequenceControl::Kind::kStart; break;
  }
  if (control.kind == SequenceControl::Kind::kCorrelationId) {
    control.data_type = read_type(message.data_type());
  } else if (message.int32_false_true_size() == 2) {
    control.data_type = DataType::kInt32;
    control.false_value = bytes_of<int32_t>(message.int32_false_true(0));
    control.true_value = bytes_of<int32_t>(message.int32_false_true(1));
  } else if (message.fp32_false_true_size() == 2) {
    control.data_type = DataType::kFp32;
    control.false_value = bytes_of<float>(message.fp32_false_true(0));
    control.true_value = bytes_of<float>(message.fp32_false_true(1));
  } else if (message.bool_false_true_size() == 2) {
    control.data_type = DataType::kBool;
    control.false_value = bytes_of<uint8_t>(message.bool_false_true(0) ? 1 : 0);
    control.true_value = bytes_of<uint8_t>(message.bool_false_true(1) ? 1 : 0);
  }
  return control;
}

SequenceState read_state(const inference::ModelSequenceBatching::State& message) {
  SequenceState state;
  state.input = message.input_name();
  state.output = message.output_name();
  state.data_type = read_type(message.data_type());
  state.dims = read_dims(message.dims());
  if (message.initial_state_size() > 0) {
    const auto& first = message.initial_state(0);
    state.initial = {first.name(), read_type(first.data_type()), read_dims(first.dims()), first.data_file()};
  }
  return state;
}

SequenceBatching read_sequence_batching(const inference::ModelSequenceBatching& message) {
  SequenceBatching batching;
  if (message.max_sequence_idle_microseconds() != 0) batching.max_idle_us = message.max_sequence_idle_microseconds();
  for (const auto& input : message.control_input())
    for (const auto& control : input.control()) batching.controls.push_back(read_control(input.name(), control));
  for (const auto& state : message.state()) batching.states.push_back(read_state(state));
  if (message.has_oldest()) {
    const auto& oldest = message.oldest();
    batching.oldest = true;
    batching.max_candidate_sequences = oldest.max_candidate_sequences();
    batching.preferred_batch_sizes.assign(oldest.preferred_batch_size().begin(), oldest.preferred_batch_size().end());
    batching.max_queue_delay_us = oldest.max_queue_delay_microseconds();
    batching.preserve_ordering = oldest.preserve_ordering();
  } else {
    batching.max_queue_delay_us = message.direct().max_queue_delay_microseconds();
    batching.minimum_slot_utilization = message.direct().minimum_slot_utilization();
  }
  return batching;
}

Ensemble read_ensemble(const inference::ModelEnsembling& message) {
  Ensemble ensemble;
  ensemble.max_inflight_requests = message.max_inflight_requests();
  for (const auto& step : message.step()) {
    // Zero is what a text that leaves the version out says; versions begin at 1.
    ensemble.steps.push_back({step.model_name(),
                              step.model_version() > 0 ? step.model_version() : -1,
                              {step.input_map().begin(), step.input_map().end()},
                              {step.output_map().begin(), step.output_map().end()}});
  }
  return ensemble;
}

InstanceGroup read_instance_group(const inference::ModelInstanceGroup& message) {
  InstanceGroup group{message.name(), message.count(), {}, message.rate_limiter().priority()};
  for (const auto& resource : message.rate_limiter().resources())
    group.rate_resources.push_back({resource.name(), resource.global(), resource.count()});
  return group;
}

void read_batch_tensors(const inference::ModelConfig& message, ModelConfig& config) {
  for (const auto& input : message.batch_input()) {
    config.batch_inputs.push_back({static_cast<BatchInput::Kind>(input.kind()),
                                   {input.target_name().begin(), input.target_name().end()},
                                   read_type(input.data_type()),
                                   input.source_input_size() > 0 ? input.source_input(0) : std::string()});
  }
  for (const auto& output : message.batch_output()) {
    config.batch_outputs.push_back({{output.target_name().begin(), output.target_name().end()},
                                    output.source_input_size() > 0 ? output.source_input(0) : std::string()});
  }
}

Warmup read_warmup(const inference::ModelWarmup& message) {
  Warmup warmup;
  warmup.name = message.name();
  warmup.batch_size = message.batch_size();
  warmup.count = std::max<uint32_t>(message.count(), 1);
  for (const auto& [name, input] : message.inputs()) {
    WarmupInput read;
    read.name = name;
    read.data_type = read_type(input.data_type());
    read.dims = read_dims(input.dims());
    if (input.input_data_type_case() == inference::ModelWarmup::Input::kRandomData)
      read.data = WarmupInput::Data::kRandom;
    if (input.input_data_type_case() == inference::ModelWarmup::Input::kInputDataFile) {
      read.data = WarmupInput::Data::kFile;
      read.file = input.input_data_file();
    }
    warmup.inputs.push_back(std::move(read));
  }
  std::sort(warmup.inputs.begin(), warmup.inputs.end(),
            [](const WarmupInput& a, const WarmupInput& b) { return a.name < b.name; });
  return warmup;
}

DevicePriority read_priority(inference::ModelOptimizationPolicy::ModelPriority priority) {
  switch (priority) {
    case inference::ModelOptimizationPolicy::PRIORITY_MAX: return DevicePriority::kMax;
    case inference::ModelOptimizationPolicy::PRIORITY_MIN: return DevicePriority::kMin;
    default: return DevicePriority::kDefault;
  }
}

}  // namespace

ModelConfig read_message(std::shared_ptr<const inference::ModelConfig> message) {
  ModelConfig config;
  config.name = message->name();
  config.platform = message->platform();
  config.backend = message->backend();
  config.default_model_filename = message->default_model_filename();
  config.version_policy = read_version_policy(message->version_policy());
  config.max_batch_size = message->max_batch_size();
  for (const auto& io : message->input()) {
    config.inputs.push_back(read_tensor(io));
    config.inputs.back().optional = io.optional();
    config.inputs.back().allow_ragged = io.allow_ragged_batch();
  }
  for (const auto& io : message->output()) {
    config.outputs.push_back(read_tensor(io));
    config.outputs.back().label_filename = io.label_filename();
  }
  if (message->has_dynamic_batching()) config.dynamic_batching = read_dynamic_batching(message->dynamic_batching());
  if (message->has_sequence_batching()) config.sequence_batching = read_sequence_batching(message->sequence_batching());
  if (message->has_ensemble_scheduling()) config.ensemble = read_ensemble(message->ensemble_scheduling());
  read_batch_tensors(*message, config);
  config.decoupled = message->model_transaction_policy().decoupled();
  config.response_cache = message->response_cache().enable();
  for (const auto& group : message->instance_group()) config.instance_groups.push_back(read_instance_group(group));
  config.device_priority = read_priority(message->optimization().priority());
  for (const auto& [key, value] : message->parameters()) config.parameters[key] = value.string_value();
  if (auto options = read_batching_options(*message); options.is_ok()) config.batching_options = *std::move(options);
  config.metric_tags = {message->metric_tags().begin(), message->metric_tags().end()};
  for (const auto& warmup : message->model_warmup()) config.warmups.push_back(read_warmup(warmup));
  config.message = std::move(message);
  return config;
}

}  // namespace flywheel::config
