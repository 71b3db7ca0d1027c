// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/control_body.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/base64.h"
#include "server/protocol/http/json_reader.h"

namespace flywheel::http {
namespace {

constexpr size_t kMaxTexts = 16;

using FieldReader = std::function<Status(std::string_view key, ondemand::value value)>;

Status for_each_field(ondemand::object object, const FieldReader& read) {
  for (auto field : object) {
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key)) {
      return invalid_argument(std::string("failed to parse the request JSON buffer: ") +
                              simdjson::error_message(error));
    }
    FW_RETURN_IF_ERROR(read(key, field.value_unsafe().value()));
  }
  return {};
}

Status read_document(const Body& body, const FieldReader& read) {
  if (body.size() == 0) return {};
  JsonDocument document;
  FW_RETURN_IF_ERROR(document.parse(body.text()));
  ondemand::object object;
  if (const auto error = document.document.get_object().get(object)) return document.syntax_error(error);
  FW_RETURN_IF_ERROR(for_each_field(object, read));
  return document.finish();
}

Status read_parameters(const Body& body, const FieldReader& read) {
  return read_document(body, [&](std::string_view key, ondemand::value value) -> Status {
    if (key != "parameters") return skip_json(value, 1);
    ondemand::object parameters;
    if (value.get_object().get(parameters)) {
      return invalid_argument("Unable to parse 'parameters': attempt to access JSON non-object as object");
    }
    return for_each_field(parameters, read);
  });
}

Status is_null(ondemand::value value, bool& null) {
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) {
    return invalid_argument(std::string("failed to parse the request JSON buffer: ") + simdjson::error_message(error));
  }
  null = type == ondemand::json_type::null;
  return {};
}

// One text, or a number's, or a list of texts; nothing for null.
Status read_texts(ondemand::value value, std::string_view key, std::optional<std::vector<std::string>>& out) {
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) {
    return invalid_argument(std::string("failed to parse the request JSON buffer: ") + simdjson::error_message(error));
  }
  std::string_view text;
  if (type == ondemand::json_type::null) return skip_json(value, 1);
  out.emplace();
  if (type == ondemand::json_type::number) {
    std::string_view token = value.raw_json_token();
    out->emplace_back(token.substr(0, token.find_first_of(" \t\r\n")));
    return skip_json(value, 1);
  }
  if (type != ondemand::json_type::array) {
    FW_RETURN_IF_ERROR(read_json_string(value, key, text));
    out->emplace_back(text);
    return {};
  }
  ondemand::array list;
  if (value.get_array().get(list)) return invalid_argument("Unable to parse '" + std::string(key) + "'");
  for (auto element : list) {
    ondemand::value inner;
    if (const auto error = element.get(inner)) {
      return invalid_argument(std::string("failed to parse the request JSON buffer: ") +
                              simdjson::error_message(error));
    }
    FW_RETURN_IF_ERROR(read_json_string(inner, key, text));
    if (out->size() == kMaxTexts) return invalid_argument("'" + std::string(key) + "' has too many values");
    out->emplace_back(text);
  }
  return {};
}

}  // namespace

Result<bool> read_index_body(const Body& body) {
  bool ready = false;
  FW_RETURN_IF_ERROR(read_document(body, [&](std::string_view key, ondemand::value value) -> Status {
    if (key != "ready") return skip_json(value, 1);
    if (value.get_bool().get(ready)) return invalid_argument("Invalid value for 'ready': expected a boolean");
    return {};
  }));
  return ready;
}

Result<repository::LoadOverrides> read_load_body(const Body& body) {
  repository::LoadOverrides overrides;
  FW_RETURN_IF_ERROR(read_parameters(body, [&](std::string_view key, ondemand::value value) -> Status {
    constexpr std::string_view kFile = "file:";
    const std::string name(key);
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, name, text));
    if (name == "config") {
      overrides.config_json = text;
      return {};
    }
    if (!name.starts_with(kFile)) {
      return invalid_argument("unknown parameter '" + name +
                              "' of a load request: 'config' and 'file:<path>' are known");
    }
    std::optional<std::string> content = decode_base64(text);
    if (!content) return invalid_argument("load parameter '" + name + "' is not base64");
    overrides.files[name.substr(kFile.size())] = *std::move(content);
    return {};
  }));
  return overrides;
}

Result<bool> read_unload_body(const Body& body) {
  bool with_steps = false;
  FW_RETURN_IF_ERROR(read_parameters(body, [&](std::string_view key, ondemand::value value) -> Status {
    if (key == "unload_dependents") return read_json_bool(value, "unload_dependents", with_steps);
    return skip_json(value, 2);
  }));
  return with_steps;
}

Result<RegisterBody> read_register_body(const Body& body) {
  RegisterBody result;
  bool has_key = false, has_size = false;
  FW_RETURN_IF_ERROR(read_document(body, [&](std::string_view name, ondemand::value value) -> Status {
    if (name == "offset") return read_json_uint(value, name, result.offset);
    if (name == "byte_size") {
      has_size = true;
      return read_json_uint(value, name, result.byte_size);
    }
    if (name != "key") return skip_json(value, 1);
    std::string_view key;
    has_key = true;
    FW_RETURN_IF_ERROR(read_json_string(value, name, key));
    result.key = key;
    return {};
  }));
  if (!has_key) return invalid_argument("Shared memory register request has no 'key' field");
  if (!has_size) return invalid_argument("Shared memory register request has no 'byte_size' field");
  return result;
}

Result<settings::TraceChanges> read_trace_body(const Body& body) {
  settings::TraceChanges changes;
  FW_RETURN_IF_ERROR(read_document(body, [&](std::string_view key, ondemand::value value) -> Status {
    const std::string field(key);
    std::optional<std::vector<std::string>> values;
    if (!field.starts_with("trace_") && field != "log_frequency") return skip_json(value, 1);
    FW_RETURN_IF_ERROR(read_texts(value, field, values));
    return changes.set(field, values);
  }));
  return changes;
}

Result<settings::LogChanges> read_log_body(const Body& body) {
  settings::LogChanges changes;
  FW_RETURN_IF_ERROR(read_document(body, [&](std::string_view key, ondemand::value value) -> Status {
    bool null = false;
    FW_RETURN_IF_ERROR(is_null(value, null));
    if (null) return skip_json(value, 1);
    if (key == "log_info") return read_json_bool(value, key, changes.log_info.emplace());
    if (key == "log_warning") return read_json_bool(value, key, changes.log_warning.emplace());
    if (key == "log_error") return read_json_bool(value, key, changes.log_error.emplace());
    if (key == "log_verbose_level") return read_json_uint(value, key, changes.log_verbose_level.emplace());
    if (key != "log_file" && key != "log_format") return skip_json(value, 1);
    const bool is_file = key == "log_file";
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, is_file ? "log_file" : "log_format", text));
    (is_file ? changes.log_file : changes.log_format) = std::string(text);
    return {};
  }));
  return changes;
}

}  // namespace flywheel::http
