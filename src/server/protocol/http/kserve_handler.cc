// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/kserve_handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/version.h"
#include "server/protocol/http/content_coding.h"
#include "server/protocol/http/control_routes.h"
#include "server/protocol/http/generate_body.h"
#include "server/protocol/http/generate_job.h"
#include "server/protocol/http/infer_job.h"
#include "server/protocol/http/model_documents.h"
#include "server/protocol/http/openapi.h"

namespace flywheel::http {
namespace {

constexpr std::string_view kHeaderLength = "Inference-Header-Content-Length";
constexpr size_t kSlowJsonBytes = 256 << 10;
constexpr int64_t kLatest = -1;

Response not_found_response() { return error_response(404, "Not Found"); }
Response wrong_method() { return error_response(405, "Method Not Allowed"); }

// Digits, or nothing for the newest.
Result<int64_t> parse_version(std::string_view text) {
  int64_t version = kLatest;
  if (text.empty()) return version;
  if (std::from_chars(text.data(), text.data() + text.size(), version).ec != std::errc()) {
    return invalid_argument(fmt::format(
        "failed to get model version from specified version string '{}' (details: stol), version should be an "
        "integral value > 0",
        text));
  }
  return version;
}

// How many bytes of the body are JSON.
Result<size_t> json_length(const RequestHead& head, size_t body_bytes) {
  const std::optional<std::string_view> text = head.find(kHeaderLength);
  if (!text) return body_bytes;
  int64_t length = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
  if (parsed.ec == std::errc::invalid_argument ||
      (parsed.ec == std::errc() && parsed.ptr != text->data() + text->size())) {
    return invalid_argument(fmt::format("Unable to parse {}, got: {}", kHeaderLength, *text));
  }
  if (parsed.ec != std::errc() || length > std::numeric_limits<int32_t>::max() ||
      length < std::numeric_limits<int32_t>::min()) {
    return invalid_argument(fmt::format("Unable to parse {}, value is out of range [ {}, {} ], got: {}", kHeaderLength,
                                        std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(),
                                        *text));
  }
  if (length < 0 || static_cast<uint64_t>(length) > body_bytes) {
    return invalid_argument(
        fmt::format("inference header size should be in range (0, {}), got: {}", body_bytes, *text));
  }
  return static_cast<size_t>(length);
}

std::optional<size_t> announced_json_length(const RequestHead& head) {
  const std::optional<std::string_view> text = head.find(kHeaderLength);
  size_t length = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), length).ec != std::errc())
    return std::nullopt;
  return length;
}

bool is_compressed(const RequestHead& head) {
  const std::optional<std::string_view> coding = head.find("content-encoding");
  return coding && !coding->empty() && !equals_ignoring_case(*coding, "identity");
}

// Whether inputs may have to be copied from shared memory. Looks only at what can be read in no time.
bool uses_shared_memory(const Exchange& exchange) {
  const size_t json_bytes = announced_json_length(exchange.head()).value_or(exchange.body().size());
  return exchange.body().text().substr(0, std::min(json_bytes, kSlowJsonBytes)).find("shared_memory_region") !=
         std::string_view::npos;
}

}  // namespace

KServeHandler::KServeHandler(repository::ModelRepository& repository, KServeOptions options)
    : repository_(repository), options_([&] {
        if (options.shared_memory == nullptr) {
          shared_memory::RegistryOptions none;
          none.enabled = false;
          options.shared_memory = std::make_shared<shared_memory::RegionRegistry>(none);
        }
        if (options.tracer == nullptr) options.tracer = std::make_shared<settings::Tracer>();
        return std::move(options);
      }()) {}

BodyPlan KServeHandler::plan_body(const RequestHead& head) {
  const std::optional<size_t> json_bytes = announced_json_length(head);
  const bool binary = json_bytes.value_or(0) > 0 && *json_bytes <= options_.max_input_bytes && !is_compressed(head);
  return {binary ? options_.max_binary_body_bytes : options_.max_input_bytes, json_bytes.value_or(0)};
}

Response KServeHandler::body_too_large(const RequestHead& head, uint64_t body_bytes) {
  const bool binary = announced_json_length(head).value_or(0) > 0;
  if (announced_json_length(head) == size_t{0}) {
    return error_response(
        400, fmt::format("Raw input has a byte_size ({} bytes) that exceeds the maximum allowed value of {} "
                         "bytes. Use --http-max-input-size to increase the limit.",
                         body_bytes, options_.max_input_bytes));
  }
  return error_response(400,
                        fmt::format("request JSON size of {} bytes exceeds the maximum allowed input size of {} bytes. "
                                    "Use --http-max-input-size to increase the limit.",
                                    body_bytes, binary ? options_.max_binary_body_bytes : options_.max_input_bytes));
}

bool KServeHandler::is_slow(const Exchange& exchange) {
  const size_t body_bytes = exchange.body().size();
  if (body_bytes == 0) return false;
  if (is_compressed(exchange.head())) return true;
  if (options_.shared_memory->has_large_regions() && uses_shared_memory(exchange)) return true;
  if (body_bytes <= kSlowJsonBytes) return false;
  return announced_json_length(exchange.head()).value_or(body_bytes) > kSlowJsonBytes;
}

void KServeHandler::handle(const ExchangePtr& exchange) {
  bool answered_later = false;
  Response response = route(exchange, answered_later);
  if (!answered_later) exchange->respond(std::move(response));
}

Response KServeHandler::route(const ExchangePtr& exchange, bool& answered_later) {
  const RequestHead& head = exchange->head();
  const std::optional<RouteMatch> match = match_route(head.path);
  if (!match) return not_found_response();
  const RouteInfo& info = *match->info;
  const std::string* missing =
      options_.restricted.missing_header(info.category, [&](std::string_view name) { return head.find(name); });
  if (missing != nullptr) {
    return error_response(403, fmt::format("This API is restricted, expecting header '{}'", *missing));
  }
  const bool allowed = head.method == Method::kGet ? info.get : head.method == Method::kPost && info.post;
  if (!allowed) return wrong_method();
  switch (info.route) {
    case Route::kServerMetadata: return json_response(server_metadata_json(options_.server_name, version()));
    case Route::kLive: return {};
    case Route::kReady: {
      Response response;
      if (!repository_.is_ready()) response.status = 400;
      return response;
    }
    case Route::kAllStatistics: return statistics({}, kLatest);
    case Route::kTrace:
    case Route::kModelTrace: return trace_route(*exchange, *match, repository_, *options_.tracer);
    case Route::kLogging: return logging_route(*exchange);
    case Route::kIndex:
    case Route::kLoad:
    case Route::kUnload:
    case Route::kNamedRepository: return repository_route(exchange, *match, repository_, answered_later);
    case Route::kSystemMemoryStatus:
    case Route::kSystemMemoryRegister:
    case Route::kSystemMemoryUnregister:
    case Route::kCudaMemoryStatus:
    case Route::kCudaMemoryRegister:
    case Route::kCudaMemoryUnregister: return memory_route(*exchange, *match, *options_.shared_memory);
    case Route::kOpenApi: return json_response(openapi_json(version()));
    default: return model_route(exchange, *match, answered_later);
  }
}

Response KServeHandler::model_route(const ExchangePtr& exchange, const RouteMatch& match, bool& answered_later) {
  const Result<int64_t> version = parse_version(match.version);
  if (!version.is_ok()) return error_response(version.status());
  const std::string& name = match.name;
  Status status;
  switch (match.info->route) {
    case Route::kModelMetadata: return metadata(name, *version);
    case Route::kModelReady:
      if (!repository_.find(name, *version).is_ok()) return error_response(400, "Model version not ready");
      return {};
    case Route::kModelConfig: {
      const Result<repository::ServedModelPtr> model = repository_.find(name, *version);
      return model.is_ok() ? json_response((*model)->config_json()) : error_response(model.status());
    }
    case Route::kModelStatistics: return statistics(name, *version);
    case Route::kGenerate: status = generate(exchange, name, *version, false); break;
    case Route::kGenerateStream: status = generate(exchange, name, *version, true); break;
    default: status = infer(exchange, name, *version); break;
  }
  answered_later = status.is_ok();
  if (answered_later) return {};
  Response response = error_response(status);
  if (status.message() == "Unsupported compression type") response.add_field("Accept-Encoding", "gzip, deflate");
  return response;
}

Response KServeHandler::metadata(std::string_view name, int64_t version) {
  const Result<repository::ServedModelPtr> model = repository_.find(name, version);
  if (!model.is_ok()) return error_response(model.status());
  const std::vector<int64_t> versions =
      version == kLatest ? repository_.table().ready_versions(name) : std::vector<int64_t>{version};
  return json_response(model_metadata_json(**model, versions));
}

Response KServeHandler::statistics(std::string_view name, int64_t version) {
  std::vector<repository::ServedModelPtr> models = repository_.table().ready_models();
  if (!name.empty()) {
    std::erase_if(models, [&](const repository::ServedModelPtr& model) { return model->name() != name; });
    if (models.empty()) return error_response(400, fmt::format("requested model '{}' is not available", name));
    std::erase_if(models, [&](const repository::ServedModelPtr& model) {
      return version != kLatest && model->version() != version;
    });
    if (models.empty()) {
      return error_response(400, fmt::format("requested model version is not available for model '{}'", name));
    }
  }
  return json_response(statistics_json(models));
}

Status KServeHandler::infer(const ExchangePtr& exchange, std::string_view name, int64_t version) {
  const RequestHead& head = exchange->head();
  FW_ASSIGN_OR_RETURN(repository::ServedModelPtr model, repository_.find(name, version));
  if (model->config().decoupled)
    return unsupported("HTTP end point doesn't support models with decoupled transaction policy");
  auto request = std::make_shared<schedule::InferRequest>();
  request->timeline.received_ns = exchange->received_ns();
  InferBody wishes;
  auto read = [&]() -> Status {
    const std::optional<Coding> coding = parse_content_encoding(head.find("content-encoding").value_or(""));
    if (!coding) return unsupported("Unsupported compression type");
    Body decompressed;
    const Body* body = &exchange->body();
    if (*coding != Coding::kIdentity) {
      FW_ASSIGN_OR_RETURN(decompressed, decompress(exchange->body().bytes(), options_.max_input_bytes,
                                                   announced_json_length(head).value_or(0), exchange->body().budget()));
      body = &decompressed;
    }
    FW_ASSIGN_OR_RETURN(const size_t json_bytes, json_length(head, body->size()));
    FW_RETURN_IF_ERROR(read_infer_body(*body, json_bytes, model->config(), options_.max_input_bytes,
                                       *options_.shared_memory, *request, wishes));
    FW_RETURN_IF_ERROR(forward_headers(head, *request));
    return model->prepare(*request);
  };
  if (const Status status = read(); !status.is_ok()) {
    model->statistics().record_failure(schedule::FailureReason::kOther, exchange->received_ns(),
                                       schedule::monotonic_now_ns());
    return status;
  }
  settings::TracePtr trace = options_.tracer->sample(model->name());
  const Coding answer_coding = choose_response_coding(head.find("accept-encoding").value_or(""));
  start_inference(exchange, std::move(model), std::move(request), std::move(wishes), answer_coding, std::move(trace));
  return {};
}

Status KServeHandler::generate(const ExchangePtr& exchange, std::string_view name, int64_t version, bool streaming) {
  const RequestHead& head = exchange->head();
  FW_ASSIGN_OR_RETURN(repository::ServedModelPtr model, repository_.find(name, version));
  if (is_compressed(head)) {
    return invalid_argument("Unsupported content-encoding, only 'identity' is supported.");
  }
  auto request = std::make_shared<schedule::InferRequest>();
  request->timeline.received_ns = exchange->received_ns();
  auto read = [&]() -> Status {
    FW_RETURN_IF_ERROR(read_generate_body(exchange->body(), model->config(), options_.max_input_bytes, *request));
    FW_RETURN_IF_ERROR(forward_headers(head, *request));
    return model->prepare(*request);
  };
  if (const Status status = read(); !status.is_ok()) {
    model->statistics().record_failure(schedule::FailureReason::kOther, exchange->received_ns(),
                                       schedule::monotonic_now_ns());
    return status;
  }
  settings::TracePtr trace = options_.tracer->sample(model->name());
  start_generate(exchange, std::move(model), std::move(request), streaming, std::move(trace));
  return {};
}

Status KServeHandler::forward_headers(const RequestHead& head, schedule::InferRequest& request) const {
  if (options_.forwarded_headers.is_empty()) return {};
  for (const Field& field : head.fields) {
    if (!options_.forwarded_headers.matches(field.name)) continue;
    if (settings::is_reserved_parameter(field.name)) {
      return invalid_argument(
          fmt::format("Header '{}' is reserved for Triton usage and cannot be forwarded.", field.name));
    }
    request.parameters.insert_or_assign(std::string(field.name), std::string(field.value));
  }
  return {};
}

}  // namespace flywheel::http
