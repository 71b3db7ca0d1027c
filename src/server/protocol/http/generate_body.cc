// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/generate_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "server/config/json_writer.h"
#include "server/protocol/http/json_reader.h"
#include "server/protocol/http/request_parameters.h"
#include "tensor/shape.h"

namespace flywheel::http {
namespace {

using config::DataType;
using ondemand::json_type;

Status syntax_error(simdjson::error_code error) {
  return invalid_argument(fmt::format("failed to parse the request JSON buffer: {}", simdjson::error_message(error)));
}

class GenerateReader {
 public:
  GenerateReader(const config::ModelConfig& config, uint64_t max_input_bytes, schedule::InferRequest& request)
      : config_(config), max_input_bytes_(max_input_bytes), request_(request) {}

  Status read(const Body& body) {
    JsonDocument document;
    FW_RETURN_IF_ERROR(document.parse(body.text()));
    ondemand::object object;
    if (const auto error = document.document.get_object().get(object)) return document.syntax_error(error);
    FW_RETURN_IF_ERROR(read_members(object, true));
    FW_RETURN_IF_ERROR(document.finish());
    request_.input_owner = owned_;
    return {};
  }

 private:
  Status read_members(ondemand::object object, bool outermost) {
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) return syntax_error(error);
      ondemand::value value = field.value_unsafe().value();
      FW_RETURN_IF_ERROR(read_member(key, value, outermost));
    }
    return {};
  }

  Status read_member(std::string_view key, ondemand::value value, bool outermost) {
    if (const config::TensorConfig* input = config_.find_input(key)) return read_input(*input, value);
    if (outermost && key == "id") {
      std::string_view id;
      FW_RETURN_IF_ERROR(read_json_string(value, "id", id));
      request_.id = id;
      return {};
    }
    if (outermost && key == "parameters") {
      ondemand::object parameters;
      if (value.get_object().get(parameters)) {
        return invalid_argument("Unable to parse 'parameters': attempt to access JSON non-object as object");
      }
      return read_members(parameters, false);
    }
    bool ignored = false;
    return read_request_parameter(key, value, request_, ignored);
  }

  Status read_input(const config::TensorConfig& input, ondemand::value value) {
    json_type type;
    if (const auto error = value.type().get(type)) return syntax_error(error);
    if (type == json_type::array) return read_elements(input, value);
    // A value alone is a tensor of one element: the reader of tensors gets a list of it.
    std::string_view raw = value.raw_json_token();
    while (!raw.empty() && (raw.back() == ' ' || raw.back() == '\n' || raw.back() == '\r' || raw.back() == '\t')) {
      raw.remove_suffix(1);
    }
    if (type == json_type::object || type == json_type::null) {
      return invalid_argument(fmt::format("Unable to parse '{}': expected a value, or a list of values", input.name));
    }
    const simdjson::padded_string text(fmt::format("[{}]", raw));
    ondemand::parser parser;
    ondemand::document document;
    ondemand::value list;
    if (const auto error = parser.iterate(text).get(document)) return syntax_error(error);
    if (const auto error = document.get_value().get(list)) return syntax_error(error);
    FW_RETURN_IF_ERROR(read_elements(input, list));
    return skip_json(value, 1);
  }

  Status read_elements(const config::TensorConfig& input, ondemand::value list) {
    for (const schedule::InputView& other : request_.inputs) {
      if (other.name == input.name) return invalid_argument(fmt::format("input '{}' is given twice", input.name));
    }
    ondemand::array array;
    if (const auto error = list.get_array().get(array)) return syntax_error(error);
    size_t count = 0;
    if (const auto error = array.count_elements().get(count)) return syntax_error(error);
    std::vector<std::byte> bytes;
    const size_t element_bytes = config::element_bytes(input.data_type);
    if (input.data_type != DataType::kString) {
      // Elements take two bytes of text at least and eight of memory at most.
      bytes.resize(std::max<size_t>(count, 1) * element_bytes);
      FW_RETURN_IF_ERROR(check_size(input, count * element_bytes));
    }
    schedule::InputView view;
    view.name = input.name;
    view.data_type = input.data_type;
    FW_ASSIGN_OR_RETURN(view.shape, shape_for(input, count));
    if (input.data_type == DataType::kString) {
      FW_RETURN_IF_ERROR(read_array_of_strings(array, count, bytes));
      FW_RETURN_IF_ERROR(check_size(input, bytes.size()));
    } else {
      FW_RETURN_IF_ERROR(read_json_tensor(array, input.name, input.data_type, count, bytes.data()));
      bytes.resize(count * element_bytes);
    }
    owned_->push_back(std::move(bytes));
    view.bytes = owned_->back();
    request_.inputs.push_back(std::move(view));
    return {};
  }

  static Status read_array_of_strings(ondemand::array array, size_t count, std::vector<std::byte>& bytes) {
    for (auto element : array) {
      ondemand::value value;
      if (const auto error = element.get(value)) return syntax_error(error);
      std::string_view text;
      FW_RETURN_IF_ERROR(read_json_string(value, "data", text));
      append_string_element(text, bytes);
      --count;
    }
    return count == 0 ? Status() : invalid_argument("Unable to parse 'data'");
  }

  Status check_size(const config::TensorConfig& input, size_t bytes) {
    if (bytes > max_input_bytes_ || used_bytes_ > max_input_bytes_ - bytes) {
      return invalid_argument(fmt::format(
          "request size of {} bytes with input '{}' of size {} bytes exceeds the maximum allowed input size "
          "of {}. Use --http-max-input-size to increase the limit.",
          used_bytes_, input.name, bytes, max_input_bytes_));
    }
    used_bytes_ += bytes;
    return {};
  }

  // The last unknown extent takes all elements, those before it one; the batch is the first of them.
  Result<std::vector<int64_t>> shape_for(const config::TensorConfig& input, size_t count) const {
    auto refuse = [&] {
      return invalid_argument(
          fmt::format("The schema can not convert input '{}' to tensor with proper shape", input.name));
    };
    std::vector<int64_t> shape = input.dims;
    if (config_.max_batch_size > 0) shape.insert(shape.begin(), -1);
    int64_t left = static_cast<int64_t>(count);
    for (int64_t dim : shape) {
      if (dim == -1) continue;
      if (dim == 0 || left % dim != 0) return refuse();
      left /= dim;
    }
    for (size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != -1) continue;
      shape[i] = left;
      left = 1;
    }
    if (left != 1) return refuse();
    return shape;
  }

  const config::ModelConfig& config_;
  const uint64_t max_input_bytes_;
  schedule::InferRequest& request_;
  uint64_t used_bytes_ = 0;
  const std::shared_ptr<std::vector<std::vector<std::byte>>> owned_ =
      std::make_shared<std::vector<std::vector<std::byte>>>();
};

}  // namespace

Status read_generate_body(const Body& body, const config::ModelConfig& config, uint64_t max_input_bytes,
                          schedule::InferRequest& request) {
  return GenerateReader(config, max_input_bytes, request).read(body);
}

Status append_generate_response(std::string& json, const repository::ServedModel& model, const std::string& id,
                                const schedule::InferResponse& response) {
  std::map<std::string_view, std::string> members;
  if (!id.empty()) config::append_json_string(members["id"], id);
  config::append_json_string(members["model_name"], model.name());
  config::append_json_string(members["model_version"], std::to_string(model.version()));
  for (const auto& [name, value] : response.parameters) {
    std::string text;
    append_parameter_value(text, value);
    members.emplace(name, std::move(text));
  }
  for (const schedule::OutputTensor& output : response.outputs) {
    std::string text;
    FW_RETURN_IF_ERROR(config::append_json_tensor(text, output.data_type, output.bytes));
    // One element stands without its list.
    if (checked_element_count(output.shape) == int64_t{1}) text = text.substr(1, text.size() - 2);
    members.emplace(output.name, std::move(text));
  }
  json += '{';
  bool first = true;
  for (const auto& [name, text] : members) {
    if (!first) json += ',';
    first = false;
    config::append_json_string(json, name);
    json += ':';
    json += text;
  }
  json += '}';
  return {};
}

}  // namespace flywheel::http
