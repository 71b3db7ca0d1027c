// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/model_calls.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "server/backend/python/tensor_exchange.h"

namespace flywheel::python {
namespace {

constexpr uint32_t kSequenceStart = 1;
constexpr uint32_t kSequenceEnd = 2;

struct Call {
  std::string model;
  int64_t version = -1;
  schedule::RequestPtr request;
};

Result<Call> read_call(const Incoming& message) {
  MessageReader reader(message.meta);
  Call call;
  call.model = reader.string();
  call.version = reader.i64();
  auto request = std::make_shared<schedule::InferRequest>();
  request->id = reader.string();
  if (reader.u8() != 0) {
    request->sequence.id = reader.string();
  } else {
    request->sequence.id = reader.u64();
  }
  const uint32_t flags = reader.u32();
  request->sequence.start = (flags & kSequenceStart) != 0;
  request->sequence.end = (flags & kSequenceEnd) != 0;
  request->priority = reader.u64();
  request->timeout_us = reader.u64();
  request->parameters = read_parameters(reader);
  const uint32_t outputs = reader.count();
  for (uint32_t i = 0; i < outputs && reader.ok(); ++i) request->requested_outputs.push_back(reader.string());
  FW_ASSIGN_OR_RETURN(std::vector<schedule::OutputTensor> tensors, read_tensors(reader, message));
  for (schedule::OutputTensor& tensor : tensors)
    request->inputs.push_back({std::move(tensor.name), tensor.data_type, std::move(tensor.shape), tensor.bytes});
  request->input_owner = message.owner;
  request->timeline.received_ns = schedule::monotonic_now_ns();
  call.request = std::move(request);
  return call;
}

}  // namespace

void ModelCalls::begin(const Incoming& message) {
  const uint64_t id = message.id;
  Result<Call> call = read_call(message);
  if (!call.is_ok()) return respond(id, {.status = call.status()});
  const schedule::RequestPtr request = call->request;
  request->on_response = [calls = weak_from_this(), id](schedule::InferRequest&, schedule::InferResponse response) {
    if (const std::shared_ptr<ModelCalls> open = calls.lock()) open->respond(id, response);
  };
  {
    std::lock_guard lock(mutex_);
    calls_[id] = request;
  }
  caller_(call->model, call->version, request);
}

void ModelCalls::respond(uint64_t id, const schedule::InferResponse& response) {
  if (response.final) {
    std::lock_guard lock(mutex_);
    calls_.erase(id);
  }
  Outgoing message;
  message.kind = Kind::kCallResult;
  message.id = id;
  std::string& json = message.meta;
  // A decoupled model's last word may have nothing to say.
  const bool empty = response.final && response.status.is_ok() && response.outputs.empty();
  json = fmt::format("{{\"final\":{},\"empty\":{},\"error\":", response.final, empty);
  if (response.status.is_ok()) {
    json += "null";
  } else {
    json += fmt::format("[{},", code_to_triton(response.status.code()));
    json += json_quote(response.status.message());
    json += ']';
  }
  json += ",\"parameters\":";
  append_parameters(json, response.parameters);
  json += ",\"outputs\":[";
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const schedule::OutputTensor& output = response.outputs[i];
    if (i > 0) json += ',';
    append_tensor(message, output.name, output.data_type, output.shape, output.bytes);
  }
  json += "]}";
  if (Status status = channel_->send(message); !status.is_ok() && status.code() != Code::kUnavailable)
    log(LogLevel::kError, "a response for a Python model is lost: {}", status.message());
}

void ModelCalls::end() {
  std::vector<schedule::RequestPtr> left;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, call] : calls_) {
      if (schedule::RequestPtr request = call.lock()) left.push_back(std::move(request));
    }
    calls_.clear();
  }
  for (const schedule::RequestPtr& request : left) request->cancel();
}

}  // namespace flywheel::python
