// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/setting_calls.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "server/settings/log_settings.h"

namespace flywheel::grpc {

Status no_shared_memory() {
  return unsupported("Client shared memory is not supported by this server: send tensors in the message");
}

Status give_regions(const shared_memory::RegionRegistry* regions,
                    const inference::SystemSharedMemoryStatusRequest& request,
                    inference::SystemSharedMemoryStatusResponse& response) {
  if (regions == nullptr) return no_shared_memory();
  FW_ASSIGN_OR_RETURN(const std::vector<shared_memory::RegionInfo> rows, regions->describe(request.name()));
  for (const shared_memory::RegionInfo& row : rows) {
    inference::SystemSharedMemoryStatusResponse::RegionStatus& out = (*response.mutable_regions())[row.name];
    out.set_name(row.name);
    out.set_key(row.key);
    out.set_offset(row.offset);
    out.set_byte_size(row.byte_size);
  }
  return {};
}

Status change_trace_setting(repository::ModelRepository& repository, settings::Tracer* tracer,
                            const inference::TraceSettingRequest& request, inference::TraceSettingResponse& response) {
  if (tracer == nullptr) return unavailable("the server does not support trace");
  const std::string& model = request.model_name();
  if (!model.empty() && !repository.find(model).is_ok()) {
    return invalid_argument("Request for unknown model : " + model);
  }
  settings::TraceChanges changes;
  for (const auto& [field, setting] : request.settings()) {
    std::optional<std::vector<std::string>> values;
    if (setting.value_size() > 0) values.emplace(setting.value().begin(), setting.value().end());
    FW_RETURN_IF_ERROR(changes.set(field, values));
  }
  if (!request.settings().empty()) FW_RETURN_IF_ERROR(tracer->update(model, changes));
  const settings::TraceSetting now = tracer->get(model);
  auto& out = *response.mutable_settings();
  for (std::string_view level : settings::trace_level_names(now.level)) {
    out["trace_level"].add_value(std::string(level));
  }
  out["trace_rate"].add_value(std::to_string(now.rate));
  out["trace_count"].add_value(std::to_string(now.count));
  out["log_frequency"].add_value(std::to_string(now.log_frequency));
  out["trace_file"].add_value(now.file);
  out["trace_mode"].add_value(std::string(settings::kTraceMode));
  return {};
}

Status change_log_settings(const inference::LogSettingsRequest& request, inference::LogSettingsResponse& response) {
  settings::LogChanges changes;
  for (const auto& [field, setting] : request.settings()) {
    if (field == "log_file") {
      changes.log_file = setting.string_param();
    } else if (field == "log_info" || field == "log_warning" || field == "log_error") {
      if (!setting.has_bool_param()) return invalid_argument(fmt::format("expect boolean for '{}'", field));
      (field == "log_info"      ? changes.log_info
       : field == "log_warning" ? changes.log_warning
                                : changes.log_error) = setting.bool_param();
    } else if (field == "log_verbose_level") {
      if (!setting.has_uint32_param()) return invalid_argument(fmt::format("expect int32 for '{}'", field));
      changes.log_verbose_level = setting.uint32_param();
    } else if (field == "log_format") {
      if (!setting.has_string_param()) return invalid_argument(fmt::format("expect string for '{}'", field));
      changes.log_format = setting.string_param();
    }
  }
  FW_RETURN_IF_ERROR(settings::update_log_settings(changes));
  const settings::LogSettings now = settings::current_log_settings();
  auto& out = *response.mutable_settings();
  out["log_file"].set_string_param(now.log_file);
  out["log_info"].set_bool_param(now.log_info);
  out["log_warning"].set_bool_param(now.log_warning);
  out["log_error"].set_bool_param(now.log_error);
  out["log_verbose_level"].set_uint32_param(now.log_verbose_level);
  out["log_format"].set_string_param(now.log_format);
  return {};
}

}  // namespace flywheel::grpc
