// SPDX-License-Identifier: Apache-2.0
// What can be wrong with sequence_batching by itself, in the words that users of config.pbtxt know.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "server/config/config_reader.h"

namespace flywheel::config {
namespace {

using Batching = inference::ModelSequenceBatching;
using Control = Batching::Control;

Status validate_flag(const Control& control) {
  const std::string& kind = Control::Kind_Name(control.kind());
  const int int32s = control.int32_false_true_size(), floats = control.fp32_false_true_size(),
            bools = control.bool_false_true_size();
  if (int32s + floats + bools == 0)
    return invalid_argument(
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
        "'bool_false_true' for " +
        kind);
  if ((int32s != 0) + (floats != 0) + (bools != 0) > 1)
    return invalid_argument(
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
        "'bool_false_true' for " +
        kind);
  const char* field = int32s != 0 ? "int32_false_true" : floats != 0 ? "fp32_false_true" : "bool_false_true";
  if (int32s + floats + bools != 2)
    return invalid_argument(
        fmt::format("sequence batching control '{}' must have exactly 2 entries for {}", field, kind));
  return Status::ok();
}

Status validate_id(const Control& control) {
  const std::string& kind = Control::Kind_Name(control.kind());
  if (control.int32_false_true_size() + control.fp32_false_true_size() + control.bool_false_true_size() > 0)
    return invalid_argument(
        "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
        "'bool_false_true' for " +
        kind);
  switch (control.data_type()) {
    case inference::TYPE_UINT64:
    case inference::TYPE_INT64:
    case inference::TYPE_UINT32:
    case inference::TYPE_INT32:
    case inference::TYPE_STRING: return Status::ok();
    default: break;
  }
  return {Code::kInvalidArgument, fmt::format("unexpected data type for control {}", kind)};
}

Status validate_controls(const Batching& batching) {
  std::set<std::string> names;
  std::set<int> kinds;
  for (const auto& input : batching.control_input()) {
    if (input.name().empty()) return invalid_argument("sequence batching control tensor must have a name");
    if (!names.insert(input.name()).second || input.control_size() > 1)
      return invalid_argument(
          fmt::format("sequence batching control tensor '{}' is specified for multiple control kinds", input.name()));
    for (const Control& control : input.control()) {
      if (!kinds.insert(control.kind()).second)
        return invalid_argument(
            fmt::format("sequence batching specifies multiple {} tensors", Control::Kind_Name(control.kind())));
      FW_RETURN_IF_ERROR(control.kind() == Control::CONTROL_SEQUENCE_CORRID ? validate_id(control)
                                                                            : validate_flag(control));
    }
  }
  return Status::ok();
}

Status validate_initial(const Batching::State& state) {
  const std::string who = fmt::format("for state input '{}'", state.input_name());
  if (state.initial_state_size() > 1)
    return invalid_argument(
        fmt::format("initial_state field {} must contain exactly one or zero element. Found '{}' "
                    "elements.",
                    who, state.initial_state_size()));
  if (state.initial_state().empty()) return Status::ok();
  const auto& initial = state.initial_state(0);
  if (initial.data_type() != state.data_type())
    return invalid_argument(
        fmt::format("The data type used for 'initial_state' field of state '{}' does not match the state data type.",
                    state.input_name()));
  if (initial.name().empty())
    return invalid_argument(fmt::format("Field 'name' must be set when using initial_state {}.", who));
  if (initial.dims_size() != state.dims_size())
    return invalid_argument(
        fmt::format("Number of dimensions in 'initial_state' doesn't match the size of 'state' "
                    "dimensions {}. {} != {}",
                    who, initial.dims_size(), state.dims_size()));
  for (int i = 0; i < initial.dims_size(); ++i) {
    if (initial.dims(i) < 0)
      return invalid_argument(fmt::format(
          "'initial_state' field for state input name '{}' contains variable dimensions.", state.input_name()));
    if (state.dims(i) != -1 && state.dims(i) != initial.dims(i))
      return invalid_argument(
          fmt::format("'initial_state' dim for input name '{}' doesn't match 'state' dim "
                      "description. {} != {}",
                      state.input_name(), initial.dims(i), state.dims(i)));
  }
  if (initial.state_data_case() == Batching::InitialState::STATE_DATA_NOT_SET)
    return invalid_argument(
        fmt::format("initial_state setting expects state'{}' to have state_data set", state.input_name()));
  const std::string& file = initial.data_file();
  if (file.find('/') != std::string::npos || file.find('\0') != std::string::npos || file == "..")
    return invalid_argument(fmt::format(
        "'data_file' of the initial_state {} is '{}', but must be the name of a file in the model's initial_state "
        "folder",
        who, file));
  return Status::ok();
}

Status validate_states(const Batching& batching) {
  std::set<std::string> inputs, outputs;
  for (const auto& state : batching.state()) {
    if (state.input_name().empty() || state.output_name().empty())
      return invalid_argument("sequence batching state must specify 'input_name' and 'output_name'");
    if (!inputs.insert(state.input_name()).second)
      return invalid_argument(fmt::format("State input name '{}' specified more than once.", state.input_name()));
    if (!outputs.insert(state.output_name()).second)
      return invalid_argument(fmt::format("State output name '{}' specified more than once.", state.output_name()));
    if (!inference::DataType_IsValid(state.data_type()) || state.data_type() == inference::TYPE_INVALID)
      return invalid_argument(fmt::format("state '{}' must specify 'data_type'", state.input_name()));
    if (state.dims().empty())
      return invalid_argument(fmt::format("state '{}' must specify 'dims'", state.input_name()));
    for (int64_t dim : state.dims()) {
      if (dim < 1 && dim != -1)
        return invalid_argument(
            fmt::format("state '{}' dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
                        state.input_name()));
    }
    FW_RETURN_IF_ERROR(validate_initial(state));
  }
  return Status::ok();
}

}  // namespace

Status validate_sequence_batching(const Batching& batching, int32_t max_batch_size) {
  FW_RETURN_IF_ERROR(validate_controls(batching));
  FW_RETURN_IF_ERROR(validate_states(batching));
  for (int32_t size : batching.oldest().preferred_batch_size()) {
    if (size <= 0) return invalid_argument("sequence batching preferred batch size must be positive");
    if (size > max_batch_size)
      return invalid_argument("sequence batching preferred batch size must be <= max batch size");
  }
  constexpr int32_t kMaxCandidates = 1 << 20;
  if (batching.oldest().max_candidate_sequences() < 0 || batching.oldest().max_candidate_sequences() > kMaxCandidates)
    return invalid_argument(
        fmt::format("sequence batching max candidate sequences must be in range [0, {}]", kMaxCandidates));
  const float utilization = batching.direct().minimum_slot_utilization();
  if (!(utilization >= 0 && utilization <= 1))
    return invalid_argument("sequence batching minimum slot utilization must be in range (0.0, 1.0]");
  return Status::ok();
}

}  // namespace flywheel::config
