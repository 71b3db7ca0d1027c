// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/control_body.h"

#include <functional>

#include "server/protocol/http/json_reader.h"

namespace flywheel::http {
namespace {

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

Result<std::optional<std::string>> read_load_body(const Body& body) {
  std::optional<std::string> config;
  FW_RETURN_IF_ERROR(read_parameters(body, [&](std::string_view key, ondemand::value value) -> Status {
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, key, text));
    if (key == "config") {
      config = text;
      return {};
    }
    if (key.starts_with("file:")) {
      return unsupported("model files cannot be sent with a load request: put them into the model repository first");
    }
    return invalid_argument("unknown parameter '" + std::string(key) + "' of a load request: only 'config' is known");
  }));
  return config;
}

Status check_unload_body(const Body& body) {
  return read_parameters(body, [](std::string_view key, ondemand::value value) -> Status {
    bool ignored = false;
    if (key == "unload_dependents") return read_json_bool(value, "unload_dependents", ignored);
    return skip_json(value, 2);
  });
}

}  // namespace flywheel::http
