// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/infer_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "server/protocol/http/json_reader.h"
#include "server/protocol/http/request_parameters.h"
#include "server/repository/request_check.h"
#include "tensor/shape.h"

namespace flywheel::http {
namespace {

using config::DataType;
using config::ModelConfig;
using schedule::InferRequest;
using schedule::InputView;

// What an InferRequest's inputs point into.
struct InputOwner {
  std::shared_ptr<const void> body;
  std::vector<std::unique_ptr<std::byte[]>> decoded;
  std::vector<std::vector<std::byte>> strings;
  std::vector<std::shared_ptr<const void>> shared;
};

// A part of a registered region, as inputs and outputs name it.
struct SharedPart {
  std::optional<std::string> region;
  uint64_t offset = 0;
  std::optional<uint64_t> byte_size;

  // Whether the parameter is one of these.
  bool read(std::string_view key, ondemand::value value, Status& status) {
    if (key == "shared_memory_region") {
      std::string_view name;
      status = read_json_string(value, key, name);
      region = name;
    } else if (key == "shared_memory_offset") {
      status = read_json_uint(value, key, offset);
    } else if (key == "shared_memory_byte_size") {
      status = read_json_uint(value, key, byte_size.emplace());
    } else {
      return false;
    }
    return true;
  }
  Status check() const {
    if (!region || byte_size) return {};
    return invalid_argument(fmt::format(
        "'shared_memory_byte_size' must be given with 'shared_memory_region', as it is not for region '{}'", *region));
  }
};

class BodyReader {
 public:
  BodyReader(const Body& body, size_t json_bytes, const ModelConfig& config, uint64_t max_input_bytes,
             const shared_memory::RegionRegistry& regions, InferRequest& request, InferBody& out)
      : config_(config),
        max_input_bytes_(max_input_bytes),
        regions_(regions),
        request_(request),
        out_(out),
        json_(body.text().substr(0, json_bytes)),
        binary_(body.bytes().subspan(json_bytes)),
        has_binary_part_(binary_.size() > 0),
        owner_(std::make_shared<InputOwner>()) {
    owner_->body = body.share();
  }

  Status read() {
    JsonDocument document;
    FW_RETURN_IF_ERROR(document.parse(json_));
    ondemand::object object;
    if (const auto error = document.document.get_object().get(object)) return document.syntax_error(error);
    bool has_inputs = false;
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) return document.syntax_error(error);
      ondemand::value value = field.value_unsafe().value();
      Status status;
      if (key == "inputs") {
        has_inputs = true;
        status = read_inputs(value);
      } else if (key == "outputs") {
        status = read_outputs(value);
      } else if (key == "parameters") {
        status = read_parameters(value);
      } else if (key == "id") {
        std::string_view id;
        status = read_json_string(value, "id", id);
        request_.id = id;
      } else {
        status = skip_json(value, 1);
      }
      FW_RETURN_IF_ERROR(status);
    }
    FW_RETURN_IF_ERROR(document.finish());
    if (!has_inputs) {
      return invalid_argument("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'");
    }
    if (!binary_.empty()) {
      return invalid_argument(fmt::format("unexpected additional input data for model '{}'", config_.name));
    }
    request_.input_owner = owner_;
    for (const OutputWish& wish : out_.outputs) request_.requested_outputs.push_back(wish.name);
    return {};
  }

 private:
  struct InputFields {
    std::optional<std::string_view> name, datatype;
    std::optional<std::vector<int64_t>> shape;
    std::optional<uint64_t> binary_bytes;
    SharedPart shared;
    bool has_data = false;
    std::string_view deferred_data;  // came before what is needed to read it
    std::unique_ptr<std::byte[]> decoded;
    size_t decoded_bytes = 0;
    std::vector<std::byte> strings;  // decoded, when they are of that type
    bool complete() const { return name && datatype && shape; }
  };

  template <class F>
  static Status for_each_field(ondemand::value value, std::string_view what, F&& f) {
    ondemand::object object;
    if (value.get_object().get(object)) {
      return invalid_argument(fmt::format("Unable to parse '{}': attempt to access JSON non-object as object", what));
    }
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) {
        return invalid_argument(
            fmt::format("failed to parse the request JSON buffer: {}", simdjson::error_message(error)));
      }
      FW_RETURN_IF_ERROR(f(key, field.value_unsafe().value()));
    }
    return {};
  }

  template <class F>
  static Status for_each_element(ondemand::value value, std::string_view what, F&& f) {
    ondemand::array array;
    if (value.get_array().get(array)) {
      return invalid_argument(fmt::format("Unable to parse '{}': {}", what, kNotAnArray));
    }
    for (auto element : array) {
      ondemand::value inner;
      if (const auto error = element.get(inner)) {
        return invalid_argument(
            fmt::format("failed to parse the request JSON buffer: {}", simdjson::error_message(error)));
      }
      FW_RETURN_IF_ERROR(f(inner));
    }
    return {};
  }

  Status read_inputs(ondemand::value value) {
    return for_each_element(value, "inputs", [&](ondemand::value input) { return read_input(input); });
  }

  Status read_input(ondemand::value value) {
    InputFields fields;
    FW_RETURN_IF_ERROR(for_each_field(value, "inputs", [&](std::string_view key, ondemand::value field) -> Status {
      if (key == "name") return read_json_string(field, "name", fields.name.emplace());
      if (key == "datatype") return read_json_string(field, "datatype", fields.datatype.emplace());
      if (key == "shape") return read_json_shape(field, fields.shape.emplace());
      if (key == "parameters") return read_input_parameters(field, fields);
      if (key != "data") return skip_json(field, 3);
      fields.has_data = true;
      if (fields.complete()) return decode(field, fields);
      return defer(field, fields);
    }));
    FW_RETURN_IF_ERROR(check_content(fields));
    for (const auto& [present, key] :
         {std::pair(fields.name.has_value(), "name"), std::pair(fields.datatype.has_value(), "datatype"),
          std::pair(fields.shape.has_value(), "shape")}) {
      if (!present) {
        return invalid_argument(
            fmt::format("Unable to parse '{0}': attempt to access non-existing object member '{0}'", key));
      }
    }
    if (!fields.deferred_data.empty()) FW_RETURN_IF_ERROR(decode_deferred(fields));
    return add_input(std::move(fields));
  }

  // Remembers where the array lies; decoding it validates it.
  static Status defer(ondemand::value field, InputFields& fields) {
    ondemand::array array;
    if (field.get_array().get(array)) return invalid_argument(fmt::format("Unable to parse 'data': {}", kNotAnArray));
    if (array.raw_json().get(fields.deferred_data)) {
      return invalid_argument("failed to parse the request JSON buffer: 'data' does not end");
    }
    return {};
  }

  Status decode_deferred(InputFields& fields) {
    // A parser of its own: the enclosing document is still being read by the thread's.
    JsonDocument document;
    const simdjson::padded_string_view padded(fields.deferred_data.data(), fields.deferred_data.size(),
                                              fields.deferred_data.size() + simdjson::SIMDJSON_PADDING);
    ondemand::value value;
    if (document.owned.iterate(padded).get(document.document) || document.document.get_value().get(value)) {
      return invalid_argument("failed to parse the request JSON buffer: 'data' is malformed");
    }
    return decode(value, fields);
  }

  Status read_input_parameters(ondemand::value value, InputFields& fields) {
    return for_each_field(value, "parameters", [&](std::string_view key, ondemand::value field) -> Status {
      if (key == "binary_data_size") return read_json_uint(field, "binary_data_size", fields.binary_bytes.emplace());
      Status status;
      return fields.shared.read(key, field, status) ? status : skip_json(field, 4);
    });
  }

  static Status check_content(const InputFields& fields) {
    const int count =
        int{fields.has_data} + int{fields.binary_bytes.has_value()} + int{fields.shared.region.has_value()};
    if (count == 1) return fields.shared.check();
    std::string text =
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        "'shared_memory_region' in 'parameters'. But";
    if (count == 0) return invalid_argument(text + " no field is set");
    text += " set";
    if (fields.has_data) text += " 'data'";
    if (fields.binary_bytes) text += " 'binary_data_size'";
    if (fields.shared.region) text += " 'shared_memory_region'";
    return invalid_argument(text);
  }

  // Whether checking the request will refuse the input anyway, so that decoding it would only cost memory.
  bool is_pointless(const InputFields& fields, DataType type) const {
    const config::TensorConfig* tensor = config_.find_input(*fields.name);
    if (tensor == nullptr || tensor->data_type != type) return true;
    return std::any_of(request_.inputs.begin(), request_.inputs.end(),
                       [&](const InputView& input) { return input.name == *fields.name; });
  }

  Status decode(ondemand::value value, InputFields& fields) {
    const DataType type = config::data_type_from_protocol(*fields.datatype).value_or(DataType::kInvalid);
    const std::vector<int64_t>& shape = *fields.shape;
    if (type != DataType::kInvalid && is_pointless(fields, type)) return skip_json(value, 3);
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (!empty && std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; })) {
      return invalid_argument(
          fmt::format("invalid shape for input '{}': shape {} contains one or more invalid dimensions", *fields.name,
                      repository::shape_text(shape)));
    }
    const std::optional<int64_t> count = empty ? 0 : checked_element_count(shape);
    if (!count) {
      return invalid_argument(
          fmt::format("invalid shape for input '{}': shape {} causes total element count to exceed maximum size of {}",
                      *fields.name, repository::shape_text(shape), std::numeric_limits<int64_t>::max()));
    }
    const int64_t element_bytes = static_cast<int64_t>(config::element_bytes(type));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(*count, element_bytes, &bytes)) {
      return invalid_argument(
          fmt::format("byte size overflow for input '{}': element count ({}) * data type size ({}) exceeds maximum "
                      "allowed size ({})",
                      *fields.name, *count, element_bytes, std::numeric_limits<int64_t>::max()));
    }
    if (static_cast<uint64_t>(bytes) > max_input_bytes_) {
      return invalid_argument(fmt::format(
          "JSON input '{}' has a byte_size ({} bytes) that exceeds the maximum allowed value of {} bytes. Use "
          "--http-max-input-size to increase the limit.",
          *fields.name, bytes, max_input_bytes_));
    }
    // An element takes two bytes of text at least: a short text cannot claim much memory.
    if (static_cast<uint64_t>(*count) > json_.size() / 2 + 1) {
      return invalid_argument("Unable to parse 'data': Shape does not match true shape of 'data' field");
    }
    if (type == DataType::kString) {
      return read_json_strings(value, static_cast<uint64_t>(*count), fields.strings);
    }
    fields.decoded = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    fields.decoded_bytes = static_cast<size_t>(bytes);
    return read_json_tensor(value, *fields.name, type, static_cast<uint64_t>(*count), fields.decoded.get());
  }

  Status add_input(InputFields fields) {
    InputView input;
    input.name = *fields.name;
    input.data_type = config::data_type_from_protocol(*fields.datatype).value_or(DataType::kInvalid);
    input.shape = std::move(*fields.shape);
    if (fields.binary_bytes) {
      if (*fields.binary_bytes > 0 && !has_binary_part_) {
        return invalid_argument(
            "must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' when passing "
            "inputs in binary data format");
      }
      if (*fields.binary_bytes > binary_.size()) {
        return invalid_argument(
            fmt::format("unexpected size for input '{}', expecting {} additional bytes for model '{}'", input.name,
                        *fields.binary_bytes - binary_.size(), config_.name));
      }
      input.bytes = binary_.subspan(0, static_cast<size_t>(*fields.binary_bytes));
      binary_ = binary_.subspan(static_cast<size_t>(*fields.binary_bytes));
    } else if (fields.decoded != nullptr) {
      input.bytes = {fields.decoded.get(), fields.decoded_bytes};
      owner_->decoded.push_back(std::move(fields.decoded));
    } else if (!fields.strings.empty()) {
      owner_->strings.push_back(std::move(fields.strings));
      input.bytes = owner_->strings.back();
    } else if (fields.shared.region) {
      FW_ASSIGN_OR_RETURN(shared_memory::InputBytes shared,
                          regions_.read(*fields.shared.region, fields.shared.offset, *fields.shared.byte_size));
      input.bytes = shared.bytes;
      owner_->shared.push_back(std::move(shared.owner));
    }
    request_.inputs.push_back(std::move(input));
    if (request_.inputs.size() > config_.inputs.size() + 64) {
      return invalid_argument(fmt::format("far too many inputs for model '{}'", config_.name));
    }
    return {};
  }

  Status read_outputs(ondemand::value value) {
    return for_each_element(value, "outputs", [&](ondemand::value output) -> Status {
      OutputWish wish;
      bool named = false;
      SharedPart shared;
      FW_RETURN_IF_ERROR(for_each_field(output, "outputs", [&](std::string_view key, ondemand::value field) -> Status {
        if (key == "name") {
          std::string_view name;
          FW_RETURN_IF_ERROR(read_json_string(field, "name", name));
          wish.name = name;
          named = true;
          return {};
        }
        if (key != "parameters") return skip_json(field, 3);
        return for_each_field(field, "parameters", [&](std::string_view parameter, ondemand::value setting) -> Status {
          if (parameter == "binary_data") return read_json_bool(setting, "binary_data", wish.binary.emplace());
          if (parameter == "classification") return read_json_uint(setting, "classification", wish.classes);
          Status status;
          return shared.read(parameter, setting, status) ? status : skip_json(setting, 4);
        });
      }));
      if (!named)
        return invalid_argument("Unable to parse 'name': attempt to access non-existing object member 'name'");
      if (shared.region && wish.classes > 0) {
        return invalid_argument("Output can't set both 'shared_memory_region' and 'classification'");
      }
      if (shared.region && wish.binary.value_or(false)) {
        return invalid_argument("Output can't set both 'shared_memory_region' and 'binary_data'");
      }
      if (shared.region) {
        FW_RETURN_IF_ERROR(shared.check());
        FW_ASSIGN_OR_RETURN(wish.place, regions_.find(*shared.region, shared.offset, *shared.byte_size));
      }
      out_.outputs.push_back(std::move(wish));
      if (out_.outputs.size() > config_.outputs.size() + 64) {
        return invalid_argument(fmt::format("far too many outputs for model '{}'", config_.name));
      }
      return {};
    });
  }

  Status read_parameters(ondemand::value value) {
    return for_each_field(value, "parameters", [&](std::string_view key, ondemand::value field) -> Status {
      return read_request_parameter(key, field, request_, out_.binary_by_default);
    });
  }

  const ModelConfig& config_;
  const uint64_t max_input_bytes_;
  const shared_memory::RegionRegistry& regions_;
  InferRequest& request_;
  InferBody& out_;
  const std::string_view json_;
  std::span<const std::byte> binary_;  // not yet given to an input
  const bool has_binary_part_;
  const std::shared_ptr<InputOwner> owner_;
};

}  // namespace

Status read_infer_body(const Body& body, size_t json_bytes, const ModelConfig& config, uint64_t max_input_bytes,
                       const shared_memory::RegionRegistry& regions, InferRequest& request, InferBody& out) {
  if (json_bytes == 0) {
    out.binary_by_default = true;
    request.input_owner = body.share();
    return repository::add_raw_input(config, body.bytes(), request);
  }
  return BodyReader(body, json_bytes, config, max_input_bytes, regions, request, out).read();
}

}  // namespace flywheel::http
