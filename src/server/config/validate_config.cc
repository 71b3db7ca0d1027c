// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "server/config/config_reader.h"

namespace flywheel::config {
namespace {

using Dims = google::protobuf::RepeatedField<int64_t>;

// Enough for any machine, and few enough that a slip of the keyboard does not start a million threads.
constexpr int64_t kMaxInstances = 256;

bool valid_dim(int64_t dim) { return dim >= 1 || dim == -1; }

// The element counts between the variable dimensions: a reshape must keep each, so that it is one for every size.
Result<std::vector<int64_t>> element_counts(const Dims& dims) {
  std::vector<int64_t> counts{1};
  for (int64_t dim : dims) {
    if (dim == -1) {
      counts.push_back(1);
    } else if (counts.back() > std::numeric_limits<int64_t>::max() / dim) {
      return invalid_argument("has more elements than fit into 64 bits");
    } else {
      counts.back() *= dim;
    }
  }
  return counts;
}

template <class Io>
Status validate_io(const Io& io, std::string_view kind, int32_t max_batch_size) {
  if (io.name().empty()) return invalid_argument(fmt::format("{} must specify 'name'", kind));
  const std::string who = fmt::format("{} '{}'", kind, io.name());
  if (!inference::DataType_IsValid(io.data_type()) || io.data_type() == inference::TYPE_INVALID)
    return invalid_argument(who + " must specify 'data_type'");
  if (io.dims().empty()) return invalid_argument(who + " must specify 'dims'");
  for (int64_t dim : io.dims())
    if (!valid_dim(dim))
      return invalid_argument(who + " dimension must be integer >= 1, or -1 to indicate a variable-size dimension");
  auto counts = element_counts(io.dims());
  if (!counts.is_ok()) return counts.status().with_context(who);
  if (!io.has_reshape()) return Status::ok();

  const Dims& reshape = io.reshape().shape();
  if (reshape.empty() && max_batch_size == 0)
    return invalid_argument(who +
                            " cannot have empty reshape for non-batching model as scalar tensors are not supported");
  for (int64_t dim : reshape)
    if (!valid_dim(dim))
      return invalid_argument(who +
                              " reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension");
  auto reshaped = element_counts(reshape);
  if (!reshaped.is_ok()) return reshaped.status().with_context(who);
  if (counts->size() != reshaped->size())
    return invalid_argument(who + " has different number of variable-size dimensions for dims and reshape");
  if (*counts != *reshaped) return invalid_argument(who + " has different size for dims and reshape");
  return Status::ok();
}

// A name of a file inside a folder, and no way out of it.
Status validate_filename(std::string_view name, std::string_view field) {
  bool bad = name.starts_with('/') || name.find('\0') != std::string_view::npos;
  for (size_t begin = 0; begin <= name.size() && !bad;) {
    const size_t end = std::min(name.find('/', begin), name.size());
    bad = name.substr(begin, end - begin) == "..";
    begin = end + 1;
  }
  if (!bad) return Status::ok();
  return invalid_argument(
      fmt::format("'{}' is '{}', but must be a relative path that stays inside the model's folder", field, name));
}

Status validate_queue_order(const inference::ModelQueuePolicy& policy) {
  if (policy.default_timeout_microseconds() == 0 || policy.timeout_action() != inference::ModelQueuePolicy::DELAY)
    return Status::ok();
  return invalid_argument("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true");
}

Status validate_dynamic_batching(const inference::ModelDynamicBatching& batching, int32_t max_batch_size) {
  for (int32_t size : batching.preferred_batch_size()) {
    if (size <= 0) return invalid_argument("dynamic batching preferred size must be positive");
    if (size > max_batch_size) return invalid_argument("dynamic batching preferred size must be <= max batch size");
  }
  const uint64_t levels = batching.priority_levels();
  if (levels != 0) {
    if (batching.default_priority_level() == 0 || batching.default_priority_level() > levels)
      return invalid_argument(fmt::format("default priority level must be in range [1, {}]", levels));
    for (const auto& [level, policy] : batching.priority_queue_policy())
      if (level == 0 || level > levels)
        return invalid_argument(fmt::format("priority queue policy must have priority level in range [1, {}]", levels));
  }
  if (batching.preserve_ordering()) {
    if (levels > 1) return invalid_argument("Only one priority level is allowed when 'preserve_ordering' is true");
    FW_RETURN_IF_ERROR(validate_queue_order(batching.default_queue_policy()));
    for (const auto& [level, policy] : batching.priority_queue_policy())
      FW_RETURN_IF_ERROR(validate_queue_order(policy));
  }
  return Status::ok();
}

Status validate_instances(const inference::ModelConfig& message) {
  int64_t total = 0;
  for (const auto& group : message.instance_group()) {
    const std::string who = fmt::format("instance group {} of model {}", group.name(), message.name());
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU)
      return invalid_argument(who + " has kind KIND_GPU but server does not support GPUs; use KIND_CPU or KIND_AUTO");
    if (!group.gpus().empty())
      return invalid_argument(fmt::format("{} has kind {} but specifies one or more GPUs", who,
                                          inference::ModelInstanceGroup::Kind_Name(group.kind())));
    if (group.count() < 1)
      return invalid_argument(fmt::format("{} has count {}, but needs at least 1", who, group.count()));
    total += group.count();
  }
  if (total > kMaxInstances)
    return invalid_argument(fmt::format("model {} asks for {} instances, but at most {} are supported", message.name(),
                                        total, kMaxInstances));
  return Status::ok();
}

template <class Ios>
Status validate_unique(const Ios& ios, std::string_view kind) {
  std::set<std::string_view> names;
  for (const auto& io : ios)
    if (!names.insert(io.name()).second)
      return invalid_argument(fmt::format("{} '{}' is given twice", kind, io.name()));
  return Status::ok();
}

Status validate_warmup_input(const std::string& name, const inference::ModelWarmup::Input& input,
                             const inference::ModelConfig& message) {
  const inference::ModelInput* model_input = nullptr;
  for (const auto& io : message.input())
    if (io.name() == name) model_input = &io;
  if (model_input == nullptr) return invalid_argument("the model has no such input");
  if (input.data_type() != model_input->data_type())
    return invalid_argument(fmt::format("data type is {}, but the input's is {}",
                                        inference::DataType_Name(input.data_type()),
                                        inference::DataType_Name(model_input->data_type())));
  bool fits = input.dims_size() == model_input->dims_size();
  for (int i = 0; fits && i < input.dims_size(); ++i)
    fits = input.dims(i) >= 1 && (model_input->dims(i) == -1 || model_input->dims(i) == input.dims(i));
  if (!fits)
    return invalid_argument("'dims' must be sizes >= 1 that fit the input's dims, without the batch dimension");
  if (input.input_data_type_case() == inference::ModelWarmup::Input::INPUT_DATA_TYPE_NOT_SET)
    return invalid_argument("must specify one of 'zero_data', 'random_data' and 'input_data_file'");
  return validate_filename(input.input_data_file(), "input_data_file");
}

Status validate_warmup(const inference::ModelWarmup& warmup, const inference::ModelConfig& message) {
  const int64_t max = message.max_batch_size();
  if (max > 0 ? warmup.batch_size() < 1 || warmup.batch_size() > max : warmup.batch_size() > 1)
    return invalid_argument(fmt::format("batch_size is {}, but must be in range [{}, {}]", warmup.batch_size(),
                                        max > 0 ? 1 : 0, max > 0 ? max : 1));
  for (const auto& [name, input] : warmup.inputs()) {
    Status status = validate_warmup_input(name, input, message);
    if (!status.is_ok()) return status.with_context(fmt::format("input '{}'", name));
  }
  for (const auto& io : message.input())
    if (!io.optional() && !warmup.inputs().contains(io.name()))
      return invalid_argument(fmt::format("has no data for the model's input '{}'", io.name()));
  return Status::ok();
}

template <class BatchIo>
Status validate_source(const BatchIo& io, std::string_view kind, std::string_view kind_name,
                       const inference::ModelConfig& message) {
  if (io.source_input_size() != 1)
    return invalid_argument(
        fmt::format("{} kind '{}' expects 1 source input, got {}", kind, kind_name, io.source_input_size()));
  for (const auto& input : message.input())
    if (input.name() == io.source_input(0)) return Status::ok();
  return invalid_argument(fmt::format("unknown source input name '{}'", io.source_input(0)));
}

Status validate_batch_io(const inference::ModelConfig& message) {
  for (const auto& io : message.batch_input()) {
    if (!inference::BatchInput::Kind_IsValid(io.kind()))
      return invalid_argument(fmt::format("unknown batch input kind '{}'", static_cast<int>(io.kind())));
    FW_RETURN_IF_ERROR(validate_source(io, "batch input", inference::BatchInput::Kind_Name(io.kind()), message));
    if (io.data_type() != inference::TYPE_INT32 && io.data_type() != inference::TYPE_FP32)
      return invalid_argument("batch input data type must be TYPE_INT32 or TYPE_FP32");
    if (io.target_name().empty()) return invalid_argument("batch input must specify 'target_name'");
  }
  std::set<std::string> targets;
  for (const auto& io : message.batch_output()) {
    if (!inference::BatchOutput::Kind_IsValid(io.kind()))
      return invalid_argument(fmt::format("unknown batch output kind '{}'", static_cast<int>(io.kind())));
    FW_RETURN_IF_ERROR(validate_source(io, "batch output", inference::BatchOutput::Kind_Name(io.kind()), message));
    for (const std::string& target : io.target_name()) {
      const bool known = std::any_of(message.output().begin(), message.output().end(),
                                     [&](const auto& output) { return output.name() == target; });
      if (!known) return invalid_argument(fmt::format("unknown target output name '{}'", target));
      if (!targets.insert(target).second)
        return invalid_argument(fmt::format("target output name '{}' can only be specified once", target));
    }
  }
  return Status::ok();
}

Status validate_parts(const inference::ModelConfig& message) {
  if (message.max_batch_size() < 0) return invalid_argument("'max_batch_size' must be non-negative value");
  if (message.has_dynamic_batching())
    FW_RETURN_IF_ERROR(validate_dynamic_batching(message.dynamic_batching(), message.max_batch_size()));
  if (message.has_sequence_batching())
    FW_RETURN_IF_ERROR(validate_sequence_batching(message.sequence_batching(), message.max_batch_size()));
  for (const auto& io : message.input()) {
    FW_RETURN_IF_ERROR(validate_io(io, "model input", message.max_batch_size()));
    if (io.format() != inference::ModelInput::FORMAT_NONE && io.dims_size() != 3)
      return invalid_argument(fmt::format("model input '{}' NHWC/NCHW require 3 dims", io.name()));
  }
  for (const auto& io : message.output()) {
    FW_RETURN_IF_ERROR(validate_io(io, "model output", message.max_batch_size()));
    FW_RETURN_IF_ERROR(validate_filename(io.label_filename(), "label_filename"));
  }
  FW_RETURN_IF_ERROR(validate_batch_io(message));
  FW_RETURN_IF_ERROR(validate_unique(message.input(), "model input"));
  FW_RETURN_IF_ERROR(validate_unique(message.output(), "model output"));
  return validate_filename(message.default_model_filename(), "default_model_filename");
}

}  // namespace

Status validate_message(const inference::ModelConfig& message) {
  if (message.response_cache().enable() && message.has_sequence_batching())
    return invalid_argument(
        fmt::format("Response Cache does not currently support model {} with sequence batching "
                    "scheduler. Please disable the response cache.",
                    message.name()));
  // An ensemble is decoupled by its steps, and then simply not cached.
  if (message.response_cache().enable() && message.model_transaction_policy().decoupled() &&
      !message.has_ensemble_scheduling())
    return invalid_argument(
        fmt::format("Response Cache does not currently support model {} with 'decoupled' transaction "
                    "policy. Please disable the response cache.",
                    message.name()));
  if (Status status = validate_parts(message); !status.is_ok())
    return {status.code(), fmt::format("{} for {}", status.message(), message.name())};
  if (message.has_ensemble_scheduling()) return validate_ensemble(message);
  if (message.platform() == "ensemble")
    return invalid_argument(
        fmt::format("ensemble scheduling must be set for ensemble {} whose platform is ensemble", message.name()));
  if (auto options = read_batching_options(message); !options.is_ok()) return options.status();
  FW_RETURN_IF_ERROR(validate_instances(message));
  for (const auto& warmup : message.model_warmup()) {
    Status status = validate_warmup(warmup, message);
    if (!status.is_ok())
      return status.with_context(fmt::format("warmup '{}' of model {}", warmup.name(), message.name()));
  }
  return Status::ok();
}

}  // namespace flywheel::config
