// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_reader.h"

#include <algorithm>

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
  for (const auto& io : message->input()) config.inputs.push_back(read_tensor(io));
  for (const auto& io : message->output()) {
    config.outputs.push_back(read_tensor(io));
    config.outputs.back().label_filename = io.label_filename();
  }
  if (message->has_dynamic_batching()) config.dynamic_batching = read_dynamic_batching(message->dynamic_batching());
  for (const auto& group : message->instance_group()) config.instance_groups.push_back({group.name(), group.count()});
  config.device_priority = read_priority(message->optimization().priority());
  for (const auto& [key, value] : message->parameters()) config.parameters[key] = value.string_value();
  config.metric_tags = {message->metric_tags().begin(), message->metric_tags().end()};
  for (const auto& warmup : message->model_warmup()) config.warmups.push_back(read_warmup(warmup));
  config.message = std::move(message);
  return config;
}

}  // namespace flywheel::config
