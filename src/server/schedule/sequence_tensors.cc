// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/sequence_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mapped_file.h"

namespace flywheel::schedule {
namespace {

using config::DataType;
using config::SequenceControl;

constexpr uint64_t kMaxStateBytes = uint64_t{1} << 34;

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// An empty string is four bytes that say its length.
size_t zero_bytes(DataType type) { return type == DataType::kString ? 4 : config::element_bytes(type); }

std::vector<std::byte> id_bytes(const SequencePosition& position, DataType type) {
  std::vector<std::byte> bytes;
  if (type == DataType::kString) {
    const auto* text = std::get_if<std::string>(&position.id);
    append(bytes, static_cast<uint32_t>(text != nullptr ? text->size() : 0));
    if (text != nullptr) {
      const size_t at = bytes.size();
      bytes.resize(at + text->size());
      if (!text->empty()) std::memcpy(bytes.data() + at, text->data(), text->size());
    }
    return bytes;
  }
  const auto* number = std::get_if<uint64_t>(&position.id);
  const uint64_t id = number != nullptr ? *number : 0;
  if (config::element_bytes(type) == 8) {
    append(bytes, id);
  } else {
    append(bytes, static_cast<uint32_t>(id));
  }
  return bytes;
}

// More owners for a request's bytes.
void keep(InferRequest& request, std::shared_ptr<const void> owner) {
  struct Both {
    std::shared_ptr<const void> first, second;
  };
  if (request.input_owner == nullptr) {
    request.input_owner = std::move(owner);
  } else {
    request.input_owner = std::make_shared<Both>(Both{std::move(request.input_owner), std::move(owner)});
  }
}

}  // namespace

Result<SequenceTensors> SequenceTensors::create(const config::ModelConfig& config, const std::string& model_folder) {
  SequenceTensors tensors;
  tensors.model_name_ = config.name;
  tensors.batched_ = config.max_batch_size > 0;
  tensors.controls_ = config.sequence_batching->controls;
  for (const config::TensorConfig& output : config.outputs) tensors.outputs_.push_back(output.name);
  for (const config::SequenceState& described : config.sequence_batching->states) {
    State state;
    state.config = described;
    state.is_output = config.find_output(described.output) != nullptr;
    state.initial_shape = described.initial ? described.initial->dims : described.dims;
    uint64_t bytes = zero_bytes(described.data_type);
    for (int64_t& dim : state.initial_shape) {
      if (dim < 0) dim = 1;
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > kMaxStateBytes)
        return invalid_argument(
            fmt::format("the initial value of state '{}' of model '{}' is too large", described.input, config.name));
    }
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    if (described.initial && !described.initial->file.empty()) {
      const std::string path = model_folder + "/initial_state/" + described.initial->file;
      FW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path, FileAccess::kCopy));
      const bool text = described.data_type == DataType::kString;
      if (!text && file.bytes().size() < values.size())
        return invalid_argument(
            fmt::format("initial_state setting expects {} bytes, but the data provided from {} only has {} bytes.",
                        values.size(), path, file.bytes().size()));
      const size_t used = text ? file.bytes().size() : values.size();
      values.assign(file.bytes().begin(), file.bytes().begin() + static_cast<std::ptrdiff_t>(used));
    }
    if (tensors.batched_) state.initial_shape.insert(state.initial_shape.begin(), 1);
    state.initial = std::make_shared<const std::vector<std::byte>>(std::move(values));
    tensors.states_.push_back(std::move(state));
  }
  return tensors;
}

Status SequenceTensors::check(const InferRequest& request) const {
  for (const SequenceControl& control : controls_) {
    if (control.kind != SequenceControl::Kind::kCorrelationId) continue;
    const bool text = std::holds_alternative<std::string>(request.sequence.id);
    if (text == (control.data_type == DataType::kString)) continue;
    return invalid_argument(fmt::format("sequence batching control '{}' data-type is '{}', but model '{}' expects '{}'",
                                        control.input, text ? "BYTES" : "UINT64", model_name_,
                                        config::protocol_name(control.data_type)));
  }
  return {};
}

void SequenceTensors::add_control(InferRequest& request, const SequenceControl& control, bool ready) const {
  InputView input;
  input.name = control.input;
  input.data_type = control.data_type;
  input.shape = batched_ ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{1};
  if (control.kind == SequenceControl::Kind::kCorrelationId) {
    auto bytes = std::make_shared<std::vector<std::byte>>(
        id_bytes(ready ? request.sequence : SequencePosition{}, control.data_type));
    input.bytes = *bytes;
    keep(request, std::move(bytes));
  } else {
    const bool set = control.kind == SequenceControl::Kind::kReady   ? ready
                     : control.kind == SequenceControl::Kind::kStart ? ready && request.sequence.start
                                                                     : ready && request.sequence.end;
    input.bytes = set ? control.true_value : control.false_value;  // as long as the model
  }
  request.inputs.push_back(std::move(input));
}

void SequenceTensors::add_states(InferRequest& request, const std::vector<OutputTensor>& state) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    InputView input;
    input.name = states_[i].config.input;
    input.data_type = states_[i].config.data_type;
    const auto last = std::find_if(state.begin(), state.end(),
                                   [&](const OutputTensor& tensor) { return tensor.name == states_[i].config.output; });
    if (last != state.end()) {
      input.shape = last->shape;
      input.bytes = last->bytes;
      keep(request, last->owner);
    } else {
      input.shape = states_[i].initial_shape;
      input.bytes = *states_[i].initial;
    }
    request.inputs.push_back(std::move(input));
  }
}

void SequenceTensors::add(InferRequest& request, const std::vector<OutputTensor>& state) const {
  for (const SequenceControl& control : controls_) add_control(request, control, true);
  add_states(request, state);
  if (request.requested_outputs.empty()) return;  // all of them
  for (const State& each : states_) {
    std::vector<std::string>& wanted = request.requested_outputs;
    if (std::find(wanted.begin(), wanted.end(), each.config.output) == wanted.end())
      wanted.push_back(each.config.output);
  }
}

RequestPtr SequenceTensors::make_empty(const InferRequest& like) const {
  auto request = std::make_shared<InferRequest>();
  auto zeros = std::make_shared<std::vector<std::vector<std::byte>>>();
  const size_t count = like.inputs.size() - std::min(like.inputs.size(), controls_.size() + states_.size());
  for (size_t i = 0; i < like.inputs.size(); ++i) {
    if (i >= count && i < count + controls_.size()) {
      add_control(*request, controls_[i - count], false);
      continue;
    }
    InputView input = like.inputs[i];
    size_t bytes = input.bytes.size();
    if (input.data_type == DataType::kString) {
      bytes = 4;
      for (int64_t dim : input.shape)
        bytes *= static_cast<size_t>(dim);  // fewer than the elements that it has bytes for
    }
    zeros->emplace_back(bytes);
    input.bytes = zeros->back();
    request->inputs.push_back(std::move(input));
  }
  keep(*request, std::move(zeros));
  request->requested_outputs = like.requested_outputs;
  request->signature = like.signature;
  return request;
}

std::vector<OutputTensor> SequenceTensors::take_states(const std::vector<std::string>& client_wants,
                                                       std::vector<OutputTensor>& outputs) const {
  std::vector<OutputTensor> taken;
  for (const State& state : states_) {
    const auto at = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const OutputTensor& output) { return output.name == state.config.output; });
    if (at == outputs.end()) continue;
    const bool wanted = state.is_output && (client_wants.empty() || std::find(client_wants.begin(), client_wants.end(),
                                                                              at->name) != client_wants.end());
    taken.push_back(*at);
    if (!wanted) outputs.erase(at);
  }
  return taken;
}

}  // namespace flywheel::schedule
