// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/model_documents.h"

#include "server/config/json_writer.h"

namespace flywheel::http {
namespace {

using repository::ServedModel;
using schedule::DurationCount;

constexpr std::string_view kExtensions[] = {"classification",
                                            "sequence",
                                            "model_repository",
                                            "model_repository(unload_dependents)",
                                            "schedule_policy",
                                            "model_configuration",
                                            "system_shared_memory",
                                            "cuda_shared_memory",
                                            "binary_tensor_data",
                                            "parameters",
                                            "statistics",
                                            "trace",
                                            "logging"};

// Objects and arrays take their commas from what stands before.
void separate(std::string& json) {
  if (json.back() != '{' && json.back() != '[') json += ',';
}

void append_key(std::string& json, std::string_view key) {
  separate(json);
  config::append_json_string(json, key);
  json += ':';
}

void append_text(std::string& json, std::string_view key, std::string_view value) {
  append_key(json, key);
  config::append_json_string(json, value);
}

void append_number(std::string& json, std::string_view key, uint64_t value) {
  append_key(json, key);
  config::append_json_uint(json, value);
}

void append_duration(std::string& json, std::string_view key, const DurationCount& duration) {
  append_key(json, key);
  json += '{';
  append_number(json, "count", duration.count);
  append_number(json, "ns", duration.ns);
  json += '}';
}

void append_tensors(std::string& json, std::string_view key, const std::vector<config::TensorConfig>& tensors,
                    bool batched) {
  append_key(json, key);
  json += '[';
  for (const config::TensorConfig& tensor : tensors) {
    separate(json);
    json += '{';
    append_text(json, "name", tensor.name);
    append_text(json, "datatype", config::protocol_name(tensor.data_type));
    std::vector<int64_t> shape = tensor.dims;
    if (batched) shape.insert(shape.begin(), -1);
    append_key(json, "shape");
    config::append_json_shape(json, shape);
    json += '}';
  }
  json += ']';
}

void append_statistics(std::string& json, const ServedModel& model) {
  const schedule::StatisticsSnapshot statistics = model.statistics().snapshot();
  json += '{';
  append_text(json, "name", model.name());
  append_text(json, "version", std::to_string(model.version()));
  append_number(json, "last_inference", static_cast<uint64_t>(statistics.last_inference_ms));
  append_number(json, "inference_count", statistics.inference_count);
  append_number(json, "execution_count", statistics.execution_count);
  append_key(json, "inference_stats");
  json += '{';
  append_duration(json, "success", statistics.success);
  append_duration(json, "fail", statistics.fail);
  append_duration(json, "queue", statistics.queue);
  append_duration(json, "compute_input", statistics.compute_input);
  append_duration(json, "compute_infer", statistics.compute_infer);
  append_duration(json, "compute_output", statistics.compute_output);
  append_duration(json, "cache_hit", statistics.cache_hit);
  append_duration(json, "cache_miss", statistics.cache_miss);
  json += '}';
  append_key(json, "response_stats");
  json += "{}";
  append_key(json, "batch_stats");
  json += '[';
  for (const auto& [size, batch] : statistics.by_batch_size) {
    separate(json);
    json += '{';
    append_number(json, "batch_size", static_cast<uint64_t>(size));
    append_duration(json, "compute_input", batch.compute_input);
    append_duration(json, "compute_infer", batch.compute_infer);
    append_duration(json, "compute_output", batch.compute_output);
    json += '}';
  }
  json += ']';
  append_key(json, "memory_usage");
  const uint64_t instances = static_cast<uint64_t>(model.config().instance_count());
  json += "[{";
  append_text(json, "type", "CPU");
  append_number(json, "id", 0);
  append_number(json, "byte_size", model.memory().total_bytes(instances));
  json += "}]}";
}

}  // namespace

std::span<const std::string_view> server_extensions() { return kExtensions; }

std::string server_metadata_json(std::string_view name, std::string_view version) {
  std::string json = "{";
  append_text(json, "name", name);
  append_text(json, "version", version);
  append_key(json, "extensions");
  json += '[';
  for (std::string_view extension : kExtensions) {
    separate(json);
    config::append_json_string(json, extension);
  }
  return json += "]}";
}

std::string model_metadata_json(const ServedModel& model, std::span<const int64_t> versions) {
  const config::ModelConfig& config = model.config();
  std::string json = "{";
  append_text(json, "name", config.name);
  append_key(json, "versions");
  json += '[';
  for (int64_t version : versions) {
    separate(json);
    config::append_json_string(json, std::to_string(version));
  }
  json += ']';
  append_text(json, "platform", config.platform.empty() ? config.backend : config.platform);
  append_tensors(json, "inputs", config.inputs, config.max_batch_size > 0);
  append_tensors(json, "outputs", config.outputs, config.max_batch_size > 0);
  return json += '}';
}

std::string statistics_json(std::span<const repository::ServedModelPtr> models) {
  std::string json = "{\"model_stats\":[";
  for (const repository::ServedModelPtr& model : models) {
    separate(json);
    append_statistics(json, *model);
  }
  return json += "]}";
}

std::string index_json(std::span<const repository::IndexRow> rows) {
  std::string json = "[";
  for (const repository::IndexRow& row : rows) {
    separate(json);
    json += '{';
    append_text(json, "name", row.name);
    if (row.version >= 0) append_text(json, "version", std::to_string(row.version));
    if (row.state != repository::ModelState::kUnknown) append_text(json, "state", model_state_name(row.state));
    if (!row.reason.empty()) append_text(json, "reason", row.reason);
    json += '}';
  }
  return json += ']';
}

}  // namespace flywheel::http
