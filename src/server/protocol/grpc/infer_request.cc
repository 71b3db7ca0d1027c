// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/infer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "server/config/model_config.pb.h"
#include "server/protocol/http/classification.h"
#include "server/repository/request_check.h"

namespace flywheel::grpc {
namespace {

using config::DataType;
using schedule::InferRequest;
using schedule::InputView;

constexpr size_t kSlowBytes = 256 << 10;
constexpr size_t kCopiedOutputBytes = 4 << 10;  // copying these frees a whole batch's outputs early
constexpr uint64_t kMaxMessageBytes = std::numeric_limits<int32_t>::max();
// A deadline's own timer comes first: the queue's is for the case that the model may reject before it.
constexpr int64_t kDeadlineSlackUs = 2000;
constexpr int64_t kMaxTimeoutUs = std::numeric_limits<int64_t>::max() / 4000;
constexpr std::string_view kEmptyFinalResponse = "triton_enable_empty_final_response";

// What an InferRequest's inputs point into.
struct InputOwner {
  std::shared_ptr<const void> message;
  std::vector<std::unique_ptr<std::byte[]>> decoded;
  std::vector<std::shared_ptr<const void>> shared_memory;
};

Status wrong_type(std::string_view key, std::string_view expected) {
  return invalid_argument(fmt::format("invalid value type for '{}' parameter, expected {}.", key, expected));
}

Status read_flag(const WireParameter& parameter, bool& out) {
  const bool* flag = std::get_if<bool>(&parameter.value);
  if (flag == nullptr) return wrong_type(parameter.key, "bool_param");
  out = *flag;
  return {};
}

Status read_parameter(const WireParameter& parameter, InferRequest& request, InferWishes& wishes) {
  const std::string_view key = parameter.key;
  const int64_t* integer = std::get_if<int64_t>(&parameter.value);
  const uint64_t* natural = std::get_if<uint64_t>(&parameter.value);
  const std::string_view* text = std::get_if<std::string_view>(&parameter.value);
  if (key == "sequence_id") {
    if (integer != nullptr) {
      request.sequence.id = static_cast<uint64_t>(*integer);
    } else if (text != nullptr) {
      request.sequence.id = std::string(*text);
    } else {
      return wrong_type(key, "int64_param or string_param");
    }
  } else if (key == "sequence_start") {
    return read_flag(parameter, request.sequence.start);
  } else if (key == "sequence_end") {
    return read_flag(parameter, request.sequence.end);
  } else if (key == "priority") {
    if (integer != nullptr && *integer < 0) {
      return invalid_argument("invalid value for 'priority', expected value >= 0.");
    }
    if (integer == nullptr && natural == nullptr) return wrong_type(key, "int64_param or uint64_param");
    request.priority = integer != nullptr ? static_cast<uint64_t>(*integer) : *natural;
  } else if (key == "timeout") {
    if (integer == nullptr) return wrong_type(key, "int64_param");
    // Triton takes a negative one for an unsigned number: so long that it is none.
    request.timeout_us = *integer < 0 ? uint64_t{0} : static_cast<uint64_t>(std::min(*integer, kMaxTimeoutUs));
  } else if (key.starts_with("triton_")) {
    if (key != kEmptyFinalResponse) {
      return invalid_argument(
          fmt::format("parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
                      "starting with 'triton_' are allowed: {}",
                      kEmptyFinalResponse));
    }
    return read_flag(parameter, wishes.empty_final_response);
  } else if (integer != nullptr) {
    request.parameters.emplace(key, *integer);
  } else if (const bool* flag = std::get_if<bool>(&parameter.value)) {
    request.parameters.emplace(key, *flag);
  } else if (text != nullptr) {
    request.parameters.emplace(key, std::string(*text));
  } else if (const double* real = std::get_if<double>(&parameter.value)) {
    request.parameters.emplace(key, *real);
  } else {
    return wrong_type(key, "int64_param, bool_param, or string_param");
  }
  return {};
}

// A part of a region that the client registered, as a tensor's parameters name it.
struct SharedMemoryPart {
  std::string_view region;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};

Result<std::optional<SharedMemoryPart>> read_shared_memory(std::string_view tensor,
                                                           const std::vector<WireParameter>& parameters) {
  auto find = [&](std::string_view key) -> const WireValue* {
    for (const WireParameter& parameter : parameters) {
      if (parameter.key == key) return &parameter.value;
    }
    return nullptr;
  };
  const WireValue* region = find("shared_memory_region");
  SharedMemoryPart part;
  if (region != nullptr) {
    const std::string_view* name = std::get_if<std::string_view>(region);
    if (name == nullptr) {
      return invalid_argument(fmt::format(
          "invalid value type for 'shared_memory_region' parameter for tensor '{}', expected string_param.", tensor));
    }
    part.region = *name;
  }
  for (const auto& [key, field] : {std::pair(std::string_view("shared_memory_offset"), &part.offset),
                                   std::pair(std::string_view("shared_memory_byte_size"), &part.byte_size)}) {
    const WireValue* value = find(key);
    if (value == nullptr) continue;
    if (region == nullptr) {
      return invalid_argument(fmt::format(
          "'{}' can not be specified without 'shared_memory_region' parameter for tensor '{}'", key, tensor));
    }
    const int64_t* number = std::get_if<int64_t>(value);
    if (number == nullptr) {
      return invalid_argument(
          fmt::format("invalid value type for '{}' parameter for tensor '{}', expected int64_param.", key, tensor));
    }
    *field = static_cast<uint64_t>(*number);
  }
  if (region == nullptr) return std::optional<SharedMemoryPart>();
  if (find("shared_memory_byte_size") == nullptr) {
    return invalid_argument(fmt::format(
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '{}'",
        tensor));
  }
  return std::optional<SharedMemoryPart>(part);
}

Status no_shared_memory() {
  return unsupported("Client shared memory is not supported by this server: send the tensor in the message");
}

Status read_inputs(const WireRequest& wire, const InferSources& sources, InferRequest& request, InputOwner& owner) {
  size_t raw_index = 0;
  for (const WireInput& input : wire.inputs) {
    InputView view;
    view.name = input.name;
    view.data_type = config::data_type_from_protocol(input.datatype).value_or(DataType::kInvalid);
    view.shape = input.shape;
    FW_ASSIGN_OR_RETURN(const std::optional<SharedMemoryPart> part, read_shared_memory(input.name, input.parameters));
    if (part) {
      if (!input.contents.empty()) {
        return invalid_argument(
            fmt::format("unexpected 'content' provided when using shared memory for input tensor '{}' for model '{}'",
                        input.name, wire.model_name));
      }
      if (sources.shared_memory == nullptr) return no_shared_memory();
      FW_ASSIGN_OR_RETURN(shared_memory::InputBytes shared,
                          sources.shared_memory->read(part->region, part->offset, part->byte_size));
      view.bytes = shared.bytes;
      owner.shared_memory.push_back(std::move(shared.owner));
      request.inputs.push_back(std::move(view));
      continue;
    }
    if (!input.contents.empty() && !wire.raw_contents.empty()) {
      return invalid_argument(
          fmt::format("contents field must not be specified when using raw_input_contents for '{}' for model '{}'",
                      input.name, wire.model_name));
    }
    if (!input.contents.empty()) {
      FW_ASSIGN_OR_RETURN(TensorBytes tensor, read_contents(input, view.data_type, wire.model_name));
      view.bytes = tensor.bytes;
      if (tensor.owned != nullptr) owner.decoded.push_back(std::move(tensor.owned));
    } else if (raw_index < wire.raw_contents.size()) {
      view.bytes = wire.raw_contents[raw_index++];
    } else {
      return invalid_argument(fmt::format("unable to find data for input tensor '{}' for model '{}' in request.",
                                          input.name, wire.model_name));
    }
    request.inputs.push_back(std::move(view));
  }
  return {};
}

Status read_outputs(const WireRequest& wire, const InferSources& sources, InferRequest& request, InferWishes& wishes) {
  bool any_classes = false, any_places = false;
  for (const WireOutput& output : wire.outputs) {
    FW_ASSIGN_OR_RETURN(const std::optional<SharedMemoryPart> part, read_shared_memory(output.name, output.parameters));
    uint64_t classes = 0;
    for (const WireParameter& parameter : output.parameters) {
      if (parameter.key != "classification") continue;
      const int64_t* count = std::get_if<int64_t>(&parameter.value);
      if (count == nullptr) {
        return invalid_argument("invalid value type for 'classification' parameter, expected int64_param");
      }
      if (*count <= 0) return invalid_argument("invalid value for 'classification' parameter, expected >= 0");
      classes = static_cast<uint64_t>(*count);
      any_classes = true;
    }
    shared_memory::OutputPlace place;
    if (part) {
      if (classes > 0) {
        return invalid_argument("output can't set both 'shared_memory_region' and 'classification'");
      }
      if (sources.shared_memory == nullptr) return no_shared_memory();
      FW_ASSIGN_OR_RETURN(place, sources.shared_memory->find(part->region, part->offset, part->byte_size));
      any_places = true;
    }
    request.requested_outputs.emplace_back(output.name);
    wishes.classes.push_back(classes);
    wishes.places.push_back(std::move(place));
  }
  if (!any_classes) wishes.classes.clear();
  if (!any_places) wishes.places.clear();
  return {};
}

Status read_request(const http::Body& message, const WireRequest& wire, const InferSources& sources,
                    const CallHead& head, InferParts& out) {
  InferRequest& request = *out.request;
  for (const WireParameter& parameter : wire.parameters) {
    FW_RETURN_IF_ERROR(read_parameter(parameter, request, out.wishes));
  }
  for (const auto& [name, value] : head.fields) {
    if (!sources.forwarded_fields.matches(name)) continue;
    if (settings::is_reserved_parameter(name)) {
      return invalid_argument(fmt::format("Header '{}' is reserved for Triton usage and cannot be forwarded.", name));
    }
    request.parameters.insert_or_assign(name, value);
  }
  auto owner = std::make_shared<InputOwner>();
  owner->message = message.share();
  FW_RETURN_IF_ERROR(read_inputs(wire, sources, request, *owner));
  FW_RETURN_IF_ERROR(read_outputs(wire, sources, request, out.wishes));
  request.input_owner = std::move(owner);
  if (head.deadline_ns != 0) {
    const int64_t left_us = std::max<int64_t>(0, (head.deadline_ns - schedule::monotonic_now_ns()) / 1000);
    const auto timeout_us = static_cast<uint64_t>(std::min(left_us + kDeadlineSlackUs, kMaxTimeoutUs));
    if (request.timeout_us == 0 || timeout_us < request.timeout_us) request.timeout_us = timeout_us;
  }
  return out.model->prepare(request);
}

}  // namespace

Result<int64_t> parse_model_version(std::string_view text) {
  if (text.empty()) return int64_t{-1};
  int64_t version = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), version);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return invalid_argument(
        fmt::format("failed to get model version from specified version string '{}' (details: stol), version should "
                    "be an integral value > 0",
                    text));
  }
  if (version < 0) {
    return invalid_argument(
        fmt::format("invalid model version specified '{}' , version should be an integral value > 0", text));
  }
  return version;
}

bool is_decoupled(const repository::ServedModel& model) {
  return model.config().message != nullptr && model.config().message->model_transaction_policy().decoupled();
}

bool is_slow_infer_request(const http::Body& message) {
  if (message.size() <= kSlowBytes) return false;
  const size_t raw = find_raw_contents(message.bytes());
  return raw == 0 || raw > kSlowBytes;
}

Status read_infer_message(const http::Body& message, const InferSources& sources, const CallHead& head,
                          InferParts& out) {
  // Reused, as most of a small request's reading is memory for its parts.
  static thread_local WireRequest wire;
  wire.clear();
  FW_RETURN_IF_ERROR(read_infer_request(message.bytes(), wire));
  out.wishes.id = wire.id;
  out.wishes.model_name = wire.model_name;
  out.wishes.model_version = wire.model_version;
  FW_ASSIGN_OR_RETURN(const int64_t version, parse_model_version(wire.model_version));
  FW_ASSIGN_OR_RETURN(out.model, sources.repository.find(wire.model_name, version));
  out.request = std::make_shared<InferRequest>();
  out.request->id = wire.id;
  out.request->timeline.received_ns = head.received_ns;
  const Status status = read_request(message, wire, sources, head, out);
  if (!status.is_ok()) {
    out.model->statistics().record_failure(schedule::FailureReason::kOther, head.received_ns,
                                           schedule::monotonic_now_ns());
    return status;
  }
  if (sources.tracer != nullptr && (out.trace = sources.tracer->sample(out.model->name())) != nullptr) {
    out.trace->stamp("GRPC_WAITREAD_START", head.received_ns);
    out.trace->stamp("GRPC_WAITREAD_END", schedule::monotonic_now_ns());
    settings::trace_request(*out.trace, out.model->name(), out.model->version(), *out.request);
  }
  return {};
}

Result<OutMessage> make_infer_message(const repository::ServedModel& model, const InferWishes& wishes,
                                      schedule::InferResponse& response, const InferMessageOptions& options) {
  for (size_t i = 0; i < response.outputs.size() && i < wishes.classes.size(); ++i) {
    if (wishes.classes[i] == 0) continue;
    schedule::OutputTensor& output = response.outputs[i];
    FW_ASSIGN_OR_RETURN(http::Classes classes, http::best_classes(output, wishes.classes[i], model));
    auto content = std::make_shared<std::vector<std::byte>>(std::move(classes.content));
    output.data_type = DataType::kString;
    output.shape = std::move(classes.shape);
    output.bytes = *content;
    output.owner = std::move(content);
  }
  for (size_t i = 0; i < response.outputs.size() && i < wishes.places.size(); ++i) {
    if (!wishes.places[i]) continue;
    schedule::OutputTensor& output = response.outputs[i];
    if (output.bytes.size() > wishes.places[i].byte_size()) {
      return internal_error(
          fmt::format("shared memory size specified with the request for output '{}' ({} bytes) should be at least {} "
                      "bytes to hold "
                      "the results",
                      output.name, wishes.places[i].byte_size(), output.bytes.size()));
    }
    FW_RETURN_IF_ERROR(wishes.places[i].write(output.bytes));
    output.bytes = {};
  }
  char version[24];
  const auto digits = std::to_chars(version, version + sizeof version, model.version());
  WireResponse wire;
  wire.model_name = model.name();
  wire.model_version = {version, static_cast<size_t>(digits.ptr - version)};
  wire.id = wishes.id;
  wire.parameters = &response.parameters;
  wire.final_response = options.final_response;
  wire.outputs = response.outputs;
  OutMessage message;
  message.text.reserve(256);
  std::vector<RawPlace> places;
  append_infer_response(wire, kCopiedOutputBytes, message.text, places);
  size_t shift = 0;
  if (options.stream) {
    size_t size = message.text.size() - OutMessage::kPrefixBytes;
    for (const RawPlace& place : places) size += response.outputs[place.output].bytes.size();
    std::string head;
    append_varint(head, 2 << 3 | 2);
    append_varint(head, size);
    message.text.insert(OutMessage::kPrefixBytes, head);
    shift = head.size();
  }
  for (const RawPlace& place : places) {
    schedule::OutputTensor& output = response.outputs[place.output];
    message.blobs.push_back({place.at + shift, {output.bytes, std::move(output.owner)}});
  }
  if (message.total_bytes() > kMaxMessageBytes) {
    return invalid_argument(fmt::format("Response has byte size {} which exceeds gRPC's byte size limit {}.",
                                        message.total_bytes(), kMaxMessageBytes));
  }
  seal_message(message, options.coding);
  return message;
}

OutMessage make_stream_notice(const InferWishes& wishes, std::string_view error, bool with_model, bool final_response) {
  WireResponse wire;
  wire.id = wishes.id;
  if (with_model) {
    wire.model_name = wishes.model_name;
    wire.model_version = wishes.model_version;
    wire.final_response = final_response;
  }
  std::string inner;
  std::vector<RawPlace> places;
  append_infer_response(wire, 0, inner, places);
  OutMessage message;
  if (!error.empty()) append_bytes_field(message.text, 1, error);
  append_bytes_field(message.text, 2, inner);
  message.seal(false);
  return message;
}

void seal_message(OutMessage& message, http::Coding coding) {
  if (coding == http::Coding::kIdentity) return message.seal(false);
  http::Response plain;
  size_t at = OutMessage::kPrefixBytes;
  for (OutMessage::Blob& blob : message.blobs) {
    auto text = std::make_shared<std::string>(message.text, at, blob.at - at);
    const WireBytes bytes = std::as_bytes(std::span(*text));
    plain.blobs.push_back({bytes, std::move(text)});
    plain.blobs.push_back(blob.content);
    at = blob.at;
  }
  auto rest = std::make_shared<std::string>(message.text, at);
  const WireBytes bytes = std::as_bytes(std::span(*rest));
  plain.blobs.push_back({bytes, std::move(rest)});
  // A message that cannot be compressed is still a message.
  if (!http::compress(plain, coding).is_ok()) return message.seal(false);
  message.blobs.clear();
  message.text.resize(OutMessage::kPrefixBytes);
  message.text += plain.body;
  message.seal(true);
}

}  // namespace flywheel::grpc
