// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/request_parameters.h"

#include <fmt/format.h>

#include "server/config/json_writer.h"

namespace flywheel::http {
namespace {

using ondemand::json_type;

constexpr size_t kMaxParameters = 1024;

Status syntax_error(simdjson::error_code error) {
  return invalid_argument(fmt::format("failed to parse the request JSON buffer: {}", simdjson::error_message(error)));
}

Status read_sequence_id(ondemand::value value, json_type type, schedule::SequencePosition& sequence) {
  if (type == json_type::string) {
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, "sequence_id", text));
    sequence.id = std::string(text);
    return {};
  }
  uint64_t number = 0;
  FW_RETURN_IF_ERROR(read_json_uint(value, "sequence_id", number));
  sequence.id = number;
  return {};
}

Status read_custom(std::string_view key, ondemand::value value, json_type type, schedule::Parameters& parameters) {
  schedule::ParameterValue parameter;
  if (type == json_type::string) {
    std::string_view text;
    FW_RETURN_IF_ERROR(read_json_string(value, key, text));
    parameter = std::string(text);
  } else if (type == json_type::boolean) {
    bool flag = false;
    FW_RETURN_IF_ERROR(read_json_bool(value, key, flag));
    parameter = flag;
  } else {
    int64_t integer = 0;
    double number = 0;
    if (!value.get_int64().get(integer)) {
      parameter = integer;
    } else if (const auto error = value.get_double().get(number)) {
      return syntax_error(error);
    } else {
      parameter = number;
    }
  }
  if (parameters.size() >= kMaxParameters) {
    return invalid_argument(fmt::format("a request may have {} parameters at most", kMaxParameters));
  }
  parameters.insert_or_assign(std::string(key), std::move(parameter));
  return {};
}

}  // namespace

Status read_request_parameter(std::string_view key, ondemand::value value, schedule::InferRequest& request,
                              bool& binary_by_default) {
  if (key == "priority") return read_json_uint(value, "priority", request.priority);
  if (key == "timeout") return read_json_uint(value, "timeout", request.timeout_us);
  if (key == "binary_data_output") return read_json_bool(value, "binary_data_output", binary_by_default);
  if (key == "sequence_start") return read_json_bool(value, "sequence_start", request.sequence.start);
  if (key == "sequence_end") return read_json_bool(value, "sequence_end", request.sequence.end);
  if (key == "headers") return skip_json(value, 2);
  if (key.starts_with("triton_")) {
    return invalid_argument(
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
  }
  json_type type;
  if (const auto error = value.type().get(type)) return syntax_error(error);
  if (type != json_type::string && type != json_type::number && type != json_type::boolean) {
    return invalid_argument(
        fmt::format("parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'.", key));
  }
  if (key == "sequence_id") return read_sequence_id(value, type, request.sequence);
  return read_custom(key, value, type, request.parameters);
}

void append_parameter_value(std::string& json, const schedule::ParameterValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    json += *flag ? "true" : "false";
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    config::append_json_int(json, *integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    config::append_json_double(json, *number);
  } else {
    config::append_json_string(json, std::get<std::string>(value));
  }
}

void append_parameters(std::string& json, const schedule::Parameters& parameters) {
  if (parameters.empty()) return;
  json += ",\"parameters\":{";
  bool first = true;
  for (const auto& [name, value] : parameters) {
    if (!first) json += ',';
    first = false;
    config::append_json_string(json, name);
    json += ':';
    append_parameter_value(json, value);
  }
  json += '}';
}

}  // namespace flywheel::http
