// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/control_routes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/config/json_writer.h"
#include "server/protocol/http/control_body.h"
#include "server/protocol/http/model_documents.h"

namespace flywheel::http {
namespace {

Response status_response(const Status& status) { return status.is_ok() ? Response() : error_response(status); }

void append_field(std::string& json, std::string_view name, std::string_view text) {
  json += json.size() > 1 ? ",\"" : "\"";
  json.append(name).append("\":");
  config::append_json_string(json, text);
}

void append_field(std::string& json, std::string_view name, bool value) {
  json += json.size() > 1 ? ",\"" : "\"";
  json.append(name).append(value ? "\":true" : "\":false");
}

std::string regions_json(const std::vector<shared_memory::RegionInfo>& regions) {
  std::string json = "[";
  for (const shared_memory::RegionInfo& region : regions) {
    if (json.size() > 1) json += ',';
    json += "{\"name\":";
    config::append_json_string(json, region.name);
    json += ",\"key\":";
    config::append_json_string(json, region.key);
    json += ",\"offset\":";
    config::append_json_uint(json, region.offset);
    json += ",\"byte_size\":";
    config::append_json_uint(json, region.byte_size);
    json += '}';
  }
  return json + "]";
}

std::string trace_json(const settings::TraceSetting& setting) {
  std::string json = "{\"trace_level\":[";
  bool first = true;
  for (std::string_view level : settings::trace_level_names(setting.level)) {
    if (!first) json += ',';
    first = false;
    config::append_json_string(json, level);
  }
  json += ']';
  append_field(json, "trace_rate", std::to_string(setting.rate));
  append_field(json, "trace_count", std::to_string(setting.count));
  append_field(json, "log_frequency", std::to_string(setting.log_frequency));
  append_field(json, "trace_file", setting.file);
  append_field(json, "trace_mode", settings::kTraceMode);
  return json + "}";
}

std::string log_json(const settings::LogSettings& log) {
  std::string json = "{";
  append_field(json, "log_file", log.log_file);
  append_field(json, "log_info", log.log_info);
  append_field(json, "log_warning", log.log_warning);
  append_field(json, "log_error", log.log_error);
  json += ",\"log_verbose_level\":";
  config::append_json_uint(json, log.log_verbose_level);
  append_field(json, "log_format", log.log_format);
  return json + "}";
}

Response register_region(const Body& body, const std::string& name, shared_memory::RegionRegistry& regions) {
  if (const Status allowed = regions.check_enabled(); !allowed.is_ok()) return error_response(allowed);
  if (name.empty()) {
    return error_response(400, "'region name' is necessary to register system shared memory region");
  }
  const Result<RegisterBody> request = read_register_body(body);
  if (!request.is_ok()) return error_response(request.status());
  return status_response(regions.register_region(name, request->key, request->offset, request->byte_size));
}

}  // namespace

Response repository_route(const ExchangePtr& exchange, const RouteMatch& match, repository::ModelRepository& repository,
                          bool& answered_later) {
  if (match.info->route == Route::kNamedRepository) {
    return error_response(501, "'repository_name' specification is not supported");
  }
  if (match.info->route == Route::kIndex) {
    const Result<bool> ready_only = read_index_body(exchange->body());
    if (!ready_only.is_ok()) return error_response(ready_only.status());
    return json_response(index_json(repository.index(*ready_only)));
  }
  auto done = [exchange](Status status) { exchange->respond(status_response(status)); };
  if (match.info->route == Route::kLoad) {
    Result<repository::LoadOverrides> overrides = read_load_body(exchange->body());
    if (!overrides.is_ok()) return error_response(overrides.status());
    answered_later = true;
    repository.load(match.name, std::move(overrides).value(), std::move(done));
    return {};
  }
  const Result<bool> with_steps = read_unload_body(exchange->body());
  if (!with_steps.is_ok()) return error_response(with_steps.status());
  answered_later = true;
  repository.unload(match.name, std::move(done), *with_steps);
  return {};
}

Response memory_route(const Exchange& exchange, const RouteMatch& match, shared_memory::RegionRegistry& regions) {
  switch (match.info->route) {
    case Route::kSystemMemoryStatus: {
      const auto found = regions.describe(match.name);
      return found.is_ok() ? json_response(regions_json(*found)) : error_response(found.status());
    }
    case Route::kSystemMemoryRegister: return register_region(exchange.body(), match.name, regions);
    case Route::kSystemMemoryUnregister: return status_response(regions.unregister(match.name));
    case Route::kCudaMemoryStatus: {
      const Status status = shared_memory::cuda_status_error(match.name);
      return status.is_ok() ? json_response("[]") : error_response(status);
    }
    case Route::kCudaMemoryRegister: {
      const Status allowed = regions.check_enabled();
      return error_response(allowed.is_ok() ? shared_memory::cuda_register_error(match.name) : allowed);
    }
    default: return status_response(regions.check_enabled());
  }
}

Response trace_route(const Exchange& exchange, const RouteMatch& match, const repository::ModelRepository& repository,
                     settings::Tracer& tracer) {
  if (match.info->route == Route::kModelTrace) {
    if (const auto model = repository.find(match.name); !model.is_ok()) return error_response(model.status());
  }
  if (exchange.head().method == Method::kPost) {
    const Result<settings::TraceChanges> changes = read_trace_body(exchange.body());
    if (!changes.is_ok()) return error_response(changes.status());
    if (const Status status = tracer.update(match.name, *changes); !status.is_ok()) return error_response(status);
  }
  return json_response(trace_json(tracer.get(match.name)));
}

Response logging_route(const Exchange& exchange) {
  if (exchange.head().method == Method::kPost) {
    const Result<settings::LogChanges> changes = read_log_body(exchange.body());
    if (!changes.is_ok()) return error_response(changes.status());
    if (const Status status = settings::update_log_settings(*changes); !status.is_ok()) return error_response(status);
  }
  return json_response(log_json(settings::current_log_settings()));
}

}  // namespace flywheel::http
