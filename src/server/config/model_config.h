// SPDX-License-Identifier: Apache-2.0
// A model's configuration as the server reads it: config.pbtxt, parsed, with what was left out filled in, and checked.
// parse_config.h makes one; the repository keeps it with the loaded model; schedule and protocol read it.
// Fields that this version cannot honour never arrive here: parsing refuses them by name.
// Thread safety: a value; immutable once completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/config/data_type.h"

namespace inference {
class ModelConfig;
}

namespace flywheel::config {

struct TensorConfig {
  std::string name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;                    // without the batch dimension; -1 is any size
  std::optional<std::vector<int64_t>> reshape;  // what the model itself takes or gives instead of `dims`
  std::string label_filename;                   // outputs only; relative to the model's folder
  bool optional = false;                        // inputs only: a request may leave it out
  bool allow_ragged = false;                    // inputs only: rows of different sizes are laid end to end

  // What the engine sees: `reshape` when given, else `dims`.
  const std::vector<int64_t>& model_dims() const { return reshape ? *reshape : dims; }
};

struct VersionPolicy {
  enum class Kind : uint8_t { kLatest, kAll, kSpecific };
  Kind kind = Kind::kLatest;
  uint32_t num_versions = 1;      // kLatest
  std::vector<int64_t> versions;  // kSpecific

  // Of the version numbers that exist on disk, those to serve, ascending.
  std::vector<int64_t> select(std::vector<int64_t> available) const;
};

// What an instance needs besides a free core, when the server limits resources.
struct RateResource {
  std::string name;
  bool global = false;  // one pool for all devices
  uint32_t count = 0;
};

struct InstanceGroup {
  std::string name;
  int32_t count = 1;
  std::vector<RateResource> rate_resources;
  uint32_t rate_priority = 0;  // gets one turn for every `rate_priority` turns of one with 1; 0 counts as 1
};

enum class TimeoutAction : uint8_t { kReject, kDelay };

struct QueuePolicy {
  TimeoutAction timeout_action = TimeoutAction::kReject;
  uint64_t default_timeout_us = 0;  // 0: none
  bool allow_timeout_override = false;
  uint32_t max_queue_size = 0;  // requests at one priority level; 0: no limit
};

struct DynamicBatching {
  std::vector<int32_t> preferred_batch_sizes;  // ascending, distinct
  uint64_t max_queue_delay_us = 0;
  bool preserve_ordering = false;
  uint64_t priority_levels = 0;  // 0: no priorities; level 1 is served first
  uint64_t default_priority_level = 0;
  QueuePolicy default_queue_policy;
  std::map<uint64_t, QueuePolicy> priority_queue_policy;

  const QueuePolicy& queue_policy(uint64_t level) const {
    auto it = priority_queue_policy.find(level);
    return it == priority_queue_policy.end() ? default_queue_policy : it->second;
  }
};

// What an instance is told about each request's place in its sequence, as tensors that clients do not send.
struct SequenceControl {
  enum class Kind : uint8_t { kStart, kReady, kEnd, kCorrelationId };
  Kind kind = Kind::kStart;
  std::string input;
  DataType data_type = DataType::kInvalid;  // of the tensor
  std::vector<std::byte> false_value;       // one element; empty for a correlation id
  std::vector<std::byte> true_value;
};

// A tensor that a model gives for each step of a sequence and gets back with the next.
struct SequenceState {
  struct Initial {
    std::string name;
    DataType data_type = DataType::kInvalid;
    std::vector<int64_t> dims;
    std::string file;  // empty: zeros; in the model's initial_state/ folder
  };
  std::string input;
  std::string output;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;  // without the batch dimension; -1 is any size
  std::optional<Initial> initial;
};

struct SequenceBatching {
  bool oldest = false;  // false: direct, each sequence has a row of one instance for itself
  uint64_t max_idle_us = 1'000'000;
  std::vector<SequenceControl> controls;
  std::vector<SequenceState> states;
  uint64_t max_queue_delay_us = 0;
  float minimum_slot_utilization = 0;          // direct
  int32_t max_candidate_sequences = 0;         // oldest, of one instance
  std::vector<int32_t> preferred_batch_sizes;  // oldest
  bool preserve_ordering = false;              // oldest
};

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                        // below 0: the newest that is ready
  std::map<std::string, std::string> inputs;   // the model's input: the ensemble's tensor
  std::map<std::string, std::string> outputs;  // the model's output: the ensemble's tensor
};

struct Ensemble {
  std::vector<EnsembleStep> steps;
  uint32_t max_inflight_requests = 0;  // of one step, for one request of the ensemble; 0: no limit
};

// An input that the server computes for each batch from what the requests sent.
struct BatchInput {
  enum class Kind : uint8_t {
    kElementCount,
    kAccumulatedElementCount,
    kAccumulatedElementCountWithZero,
    kMaxElementCountAsShape,
    kItemShape,
    kItemShapeFlatten,
  };
  Kind kind = Kind::kElementCount;
  std::vector<std::string> targets;
  DataType data_type = DataType::kInvalid;
  std::string source;
};

// Outputs that are cut into requests by the shapes of an input.
struct BatchOutput {
  std::vector<std::string> targets;
  std::string source;
};

// What users of Triton ask for and its configuration has no fields for: from `parameters`.
struct BatchingOptions {
  bool splits_large_requests = false;   // split_large_requests: more rows than max_batch_size become several batches
  bool skips_other_shapes = false;      // batch_past_other_shapes: requests behind one of another shape may join
  std::vector<int64_t> length_buckets;  // length_buckets: sizes, ascending, to which variable dims are padded
};

struct WarmupInput {
  enum class Data : uint8_t { kZero, kRandom, kFile };
  std::string name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;  // without the batch dimension
  Data data = Data::kZero;
  std::string file;  // kFile: inside the model's warmup/ folder
};

struct Warmup {
  std::string name;
  uint32_t batch_size = 0;  // 0: the model takes no batch dimension
  uint32_t count = 1;
  std::vector<WarmupInput> inputs;
};

// How the device arbiter ranks the model: optimization.priority.
enum class DevicePriority : uint8_t { kMax = 0, kDefault = 1, kMin = 2 };

struct ModelConfig {
  std::string name;
  std::string platform;
  std::string backend;
  std::string default_model_filename;  // empty: model.engine, else model.onnx
  VersionPolicy version_policy;
  int32_t max_batch_size = 0;         // 0: the model has no batch dimension that the server may use
  bool max_batch_size_given = false;  // the text has it, even as 0; of interest until completion only
  std::vector<TensorConfig> inputs;
  std::vector<TensorConfig> outputs;
  std::optional<DynamicBatching> dynamic_batching;
  std::optional<SequenceBatching> sequence_batching;
  std::optional<Ensemble> ensemble;
  std::vector<BatchInput> batch_inputs;
  std::vector<BatchOutput> batch_outputs;
  bool decoupled = false;       // any number of responses to a request
  bool response_cache = false;  // equal requests may be answered from memory
  std::vector<InstanceGroup> instance_groups;
  DevicePriority device_priority = DevicePriority::kDefault;
  std::map<std::string, std::string> parameters;
  BatchingOptions batching_options;
  std::map<std::string, std::string> metric_tags;
  std::vector<Warmup> warmups;

  // The whole message, for printing and for gRPC; never null once parsed. Its accessors are in model_config.pb.h.
  std::shared_ptr<const inference::ModelConfig> message;

  int32_t instance_count() const;
  const TensorConfig* find_input(std::string_view input_name) const;
  const TensorConfig* find_output(std::string_view output_name) const;
};

}  // namespace flywheel::config
