// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/infer_job.h"

#include <fmt/format.h>

#include <utility>

#include "server/config/json_writer.h"
#include "server/protocol/http/classification.h"
#include "server/protocol/http/request_parameters.h"
#include "server/repository/request_check.h"

namespace flywheel::http {
namespace {

// Rendering this much as JSON takes a millisecond.
constexpr size_t kSlowJsonBytes = 64 << 10;
constexpr size_t kSlowCompressionBytes = 64 << 10;
constexpr size_t kSlowSharedBytes = 1 << 20;

}  // namespace

bool InferJob::is_slow() const {
  size_t json_bytes = 0, all_bytes = 0, shared_bytes = 0;
  for (size_t i = 0; i < response_.outputs.size(); ++i) {
    const size_t bytes = response_.outputs[i].bytes.size();
    const OutputWish* wish = i < wishes_.outputs.size() ? &wishes_.outputs[i] : nullptr;
    const bool binary = wish != nullptr ? wish->binary.value_or(wishes_.binary_by_default) : wishes_.binary_by_default;
    if (wish != nullptr && wish->place) {
      shared_bytes += bytes;
      continue;
    }
    all_bytes += bytes;
    if (!binary || (wish != nullptr && wish->classes > 0)) json_bytes += bytes;
  }
  return json_bytes > kSlowJsonBytes || shared_bytes > kSlowSharedBytes ||
         (coding_ != Coding::kIdentity && all_bytes > kSlowCompressionBytes);
}

void InferJob::abandon() {
  if (const schedule::RequestPtr request = request_.lock()) request->cancel();
}

Response InferJob::render() {
  if (!response_.status.is_ok()) return error_response(response_.status);
  Result<Response> rendered = render_outputs();
  if (!rendered.is_ok()) return error_response(rendered.status());
  Response response = std::move(rendered).value();
  // An answer that cannot be compressed is still an answer.
  (void)compress(response, coding_);
  if (trace_ != nullptr) trace_sending(std::move(trace_), response);
  return response;
}

Result<Response> InferJob::render_outputs() {
  Response response;
  std::string& json = response.body;
  json.reserve(256);
  json += '{';
  if (!id_.empty()) {
    json += "\"id\":";
    config::append_json_string(json, id_);
    json += ',';
  }
  json += "\"model_name\":";
  config::append_json_string(json, model_->name());
  json += ",\"model_version\":\"";
  config::append_json_int(json, model_->version());
  json += '"';
  append_parameters(json, response_.parameters);
  json += ",\"outputs\":[";
  bool any_binary = false;
  for (size_t i = 0; i < response_.outputs.size(); ++i) {
    schedule::OutputTensor& output = response_.outputs[i];
    const OutputWish* wish = i < wishes_.outputs.size() ? &wishes_.outputs[i] : nullptr;
    if (wish != nullptr && wish->classes > 0) {
      FW_ASSIGN_OR_RETURN(Classes classes, best_classes(output, wish->classes, *model_));
      auto content = std::make_shared<std::vector<std::byte>>(std::move(classes.content));
      output.data_type = config::DataType::kString;
      output.shape = std::move(classes.shape);
      output.bytes = *content;
      output.owner = std::move(content);
    }
    if (i > 0) json += ',';
    json += "{\"name\":";
    config::append_json_string(json, output.name);
    json += ",\"datatype\":\"";
    json += config::protocol_name(output.data_type);
    json += "\",\"shape\":";
    config::append_json_shape(json, output.shape);
    const bool binary = wish != nullptr ? wish->binary.value_or(wishes_.binary_by_default) : wishes_.binary_by_default;
    if (wish != nullptr && wish->place) {
      if (output.bytes.size() > wish->place.byte_size()) {
        return internal_error(fmt::format(
            "shared memory size specified with the request for output '{}' ({} bytes) should be at least {} "
            "bytes to hold the results",
            output.name, wish->place.byte_size(), output.bytes.size()));
      }
      FW_RETURN_IF_ERROR(wish->place.write(output.bytes));
      json += '}';
    } else if (binary) {
      json += ",\"parameters\":{\"binary_data_size\":";
      config::append_json_uint(json, output.bytes.size());
      json += "}}";
      any_binary = any_binary || !output.bytes.empty();
      response.blobs.push_back({output.bytes, std::move(output.owner)});
    } else {
      json += ",\"data\":";
      FW_RETURN_IF_ERROR(config::append_json_tensor(json, output.data_type, output.bytes));
      json += '}';
    }
  }
  json += "]}";
  response.content_type = any_binary ? kBinary : kJson;
  if (any_binary) response.add_field("Inference-Header-Content-Length", std::to_string(json.size()));
  return response;
}

void InferJob::set_response(const schedule::InferRequest& request, schedule::InferResponse response) {
  if (trace_ != nullptr) settings::trace_response(*trace_, request, response);
  response_ = std::move(response);
}

void trace_arrival(settings::Trace& trace, const Exchange& exchange, const repository::ServedModel& model,
                   const schedule::InferRequest& request) {
  trace.stamp("HTTP_RECV_START", exchange.began_ns());
  trace.stamp("HTTP_RECV_END", exchange.received_ns());
  settings::trace_request(trace, model.name(), model.version(), request);
}

void trace_sending(settings::TracePtr trace, Response& response) {
  struct Sending {
    explicit Sending(settings::TracePtr of) : trace(std::move(of)) {
      trace->stamp("HTTP_SEND_START", schedule::monotonic_now_ns());
    }
    ~Sending() { trace->stamp("HTTP_SEND_END", schedule::monotonic_now_ns()); }
    const settings::TracePtr trace;
  };
  response.held_until_sent = std::make_shared<Sending>(std::move(trace));
}

void start_inference(const ExchangePtr& exchange, repository::ServedModelPtr model, schedule::RequestPtr request,
                     InferBody wishes, Coding coding, settings::TracePtr trace) {
  if (trace != nullptr) trace_arrival(*trace, *exchange, *model, *request);
  auto job = std::make_unique<InferJob>(model, request, std::move(wishes), coding, std::move(trace));
  // The exchange owns the job and outlives this call: the closure holds it.
  request->on_response = [exchange, job = job.get()](schedule::InferRequest& answered,
                                                     schedule::InferResponse response) {
    job->set_response(answered, std::move(response));
    exchange->complete();
  };
  exchange->set_job(std::move(job));
  const repository::ServedModel& target = *model;
  target.infer(std::move(request));
}

}  // namespace flywheel::http
