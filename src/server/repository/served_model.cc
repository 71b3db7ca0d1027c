// SPDX-License-Identifier: Apache-2.0
#include "server/repository/served_model.h"

#include "server/config/parse_config.h"
#include "server/repository/request_check.h"

namespace flywheel::repository {

ServedModel::ServedModel(Parts parts)
    : parts_(std::move(parts)),
      statistics_(parts_.runner->statistics()),
      config_json_(config::config_to_json(parts_.config)) {}

std::shared_ptr<backend::OpenModel> ServedModel::model_for(const config::ModelConfig& written,
                                                           const std::string& files_state) const {
  if (parts_.model == nullptr || !parts_.model->makes_more_instances()) return nullptr;
  if (files_state.empty() || parts_.files_state != files_state) return nullptr;
  // A sequence belongs to an instance, and would end with it.
  if (parts_.config.sequence_batching) return nullptr;
  return config::differ_in_instances_alone(parts_.written, written) ? parts_.model : nullptr;
}

std::optional<std::string_view> ServedModel::label(std::string_view output, size_t index) const {
  for (size_t i = 0; i < parts_.config.outputs.size(); ++i) {
    if (parts_.config.outputs[i].name != output) continue;
    if (index < parts_.labels[i].size()) return parts_.labels[i][index];
    break;
  }
  return std::nullopt;
}

std::vector<std::string> ServedModel::labels(std::string_view output) const {
  for (size_t i = 0; i < parts_.config.outputs.size(); ++i) {
    if (parts_.config.outputs[i].name == output) return parts_.labels[i];
  }
  return {};
}

Status ServedModel::prepare(schedule::InferRequest& request) const {
  FW_RETURN_IF_ERROR(check_request(parts_.config, request));
  if (parts_.model == nullptr) return {};
  const Status status = parts_.model->check(request);
  return status.is_ok() ? status : Status(status.code(), schedule::request_prefix(request.id) + status.message());
}

}  // namespace flywheel::repository
