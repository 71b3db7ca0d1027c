// SPDX-License-Identifier: Apache-2.0
#include "server/repository/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/config/parse_config.h"
#include "server/repository/engine_description.h"
#include "server/repository/request_check.h"

namespace flywheel::repository {

ServedModel::ServedModel(Parts parts)
    : parts_(std::move(parts)),
      statistics_(parts_.runner->statistics()),
      config_json_(config::config_to_json(parts_.config)) {
  for (size_t i = 0; i < parts_.config.inputs.size(); ++i) {
    const config::TensorConfig& tensor = parts_.config.inputs[i];
    if (std::find(tensor.dims.begin(), tensor.dims.end(), -1) == tensor.dims.end()) continue;
    for (size_t j = 0; j < parts_.engine->inputs().size(); ++j) {
      if (parts_.engine->inputs()[j].name == tensor.name) variable_inputs_.push_back({i, j});
    }
  }
}

std::optional<std::string_view> ServedModel::label(std::string_view output, size_t index) const {
  for (size_t i = 0; i < parts_.config.outputs.size(); ++i) {
    if (parts_.config.outputs[i].name != output) continue;
    if (index < parts_.labels[i].size()) return parts_.labels[i][index];
    break;
  }
  return std::nullopt;
}

Status ServedModel::prepare(schedule::InferRequest& request) const {
  FW_RETURN_IF_ERROR(check_request(parts_.config, request));
  return variable_inputs_.empty() ? Status() : check_profile(request);
}

// The engine would refuse these too, but for the whole batch and only after the request has waited.
Status ServedModel::check_profile(const schedule::InferRequest& request) const {
  const size_t skip = parts_.config.max_batch_size > 0 ? 1 : 0;
  for (const VariableInput& variable : variable_inputs_) {
    const config::TensorConfig& tensor = parts_.config.inputs[variable.config_index];
    const TensorInfo& info = parts_.engine->inputs()[variable.engine_index];
    const schedule::InputView& input = request.inputs[variable.config_index];
    const std::vector<int64_t> dims = map_dims(tensor.dims, tensor.model_dims(), std::span(input.shape).subspan(skip));
    for (size_t i = 0; i < dims.size(); ++i) {
      const size_t at = i + skip;
      if (at >= info.min.size() || at >= info.max.size()) break;
      if (dims[i] >= info.min[at] && dims[i] <= info.max[at]) continue;
      return invalid_argument(fmt::format(
          "{}unexpected shape for input '{}' for model '{}', got {}: dimension {} must be in [{}, {}], for "
          "which the engine was built; build it with a larger profile to serve others",
          request_prefix(request.id), input.name, name(), shape_text(input.shape), at, info.min[at], info.max[at]));
    }
  }
  return {};
}

}  // namespace flywheel::repository
