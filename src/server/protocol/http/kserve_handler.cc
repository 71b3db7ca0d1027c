// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/kserve_handler.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "server/protocol/http/content_coding.h"
#include "server/protocol/http/control_body.h"
#include "server/protocol/http/infer_job.h"
#include "server/protocol/http/model_documents.h"

namespace flywheel::http {
namespace {

constexpr std::string_view kHeaderLength = "Inference-Header-Content-Length";
constexpr size_t kSlowJsonBytes = 256 << 10;
constexpr int64_t kLatest = -1;

// "/v2/models/a%2Fb" -> {"v2", "models", "a/b"}; nothing for paths that no route can have.
std::optional<std::vector<std::string>> split_path(std::string_view path) {
  std::vector<std::string> segments;
  if (path.empty() || path.front() != '/') return std::nullopt;
  path.remove_prefix(1);
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view raw = path.substr(0, slash);
    if (raw.empty()) return std::nullopt;
    std::string segment;
    segment.reserve(raw.size());
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '%') {
        segment += raw[i];
        continue;
      }
      unsigned code = 0;
      const bool whole = i + 2 < raw.size();
      if (!whole || std::from_chars(raw.data() + i + 1, raw.data() + i + 3, code, 16).ptr != raw.data() + i + 3) {
        return std::nullopt;
      }
      segment += static_cast<char>(code);
      i += 2;
    }
    segments.push_back(std::move(segment));
    if (slash == std::string_view::npos) return segments;
    path.remove_prefix(slash + 1);
  }
}

Response not_found_response() { return error_response(404, "Not Found"); }
Response wrong_method() { return error_response(405, "Method Not Allowed"); }

Response status_response(const Status& status) {
  if (status.is_ok()) return Response();
  return error_response(status);
}

// A version number as the path has it; nothing when it is not digits.
std::optional<Result<int64_t>> parse_version(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int64_t version = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), version).ec != std::errc()) {
    return invalid_argument(fmt::format(
        "failed to get model version from specified version string '{}' (details: stol), version should be an "
        "integral value > 0",
        text));
  }
  return Result<int64_t>(version);
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

}  // namespace

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
  const std::optional<std::vector<std::string>> path = split_path(head.path);
  if (!path || path->front() != "v2") return not_found_response();
  const std::vector<std::string>& segments = *path;
  const bool get = head.method == Method::kGet;
  if (segments.size() == 1) {
    if (!get) return wrong_method();
    return json_response(server_metadata_json(options_.server_name, options_.server_version));
  }
  const std::string& area = segments[1];
  if (area == "health" && segments.size() == 3 && (segments[2] == "live" || segments[2] == "ready")) {
    if (!get) return wrong_method();
    Response response;
    if (segments[2] == "ready" && !repository_.is_ready()) response.status = 400;
    return response;
  }
  if (area == "models" && segments.size() >= 3) return route_model(exchange, segments, answered_later);
  if (area == "repository") return route_repository(exchange, segments, answered_later);
  if ((area == "systemsharedmemory" || area == "cudasharedmemory") && segments.size() >= 3) {
    return error_response(
        501,
        "Client shared memory is not supported by this server: send tensors in the request's body, as "
        "'data' or with 'binary_data_size'");
  }
  if (area == "trace" && segments.size() == 3 && segments[2] == "setting") {
    return error_response(501, "the server does not support tracing: read timings from /v2/models/stats and /metrics");
  }
  if (area == "logging" && segments.size() == 2) {
    return error_response(501, "the server does not support dynamic logging: set the log level when starting it");
  }
  return not_found_response();
}

Response KServeHandler::route_model(const ExchangePtr& exchange, const std::vector<std::string>& segments,
                                    bool& answered_later) {
  const bool get = exchange->head().method == Method::kGet;
  const std::string& name = segments[2];
  if (segments.size() == 3 && name == "stats") return get ? statistics({}, kLatest) : wrong_method();
  int64_t version = kLatest;
  size_t at = 3;
  if (at < segments.size() && segments[at] == "versions") {
    if (at + 1 >= segments.size()) return not_found_response();
    const std::optional<Result<int64_t>> parsed = parse_version(segments[at + 1]);
    if (!parsed) return not_found_response();
    if (!parsed->is_ok()) return error_response(parsed->status());
    version = parsed->value();
    at += 2;
  }
  if (at == segments.size()) return get ? metadata(name, version) : wrong_method();
  const std::string& action = segments[at];
  if (action == "trace" && at + 2 == segments.size() && segments[at + 1] == "setting" && version == kLatest) {
    return error_response(501, "the server does not support tracing: read timings from /v2/models/stats and /metrics");
  }
  if (at + 1 != segments.size()) return not_found_response();
  if (action == "infer") {
    if (exchange->head().method != Method::kPost) return wrong_method();
    const Status status = infer(exchange, name, version);
    answered_later = status.is_ok();
    if (answered_later) return {};
    Response response = error_response(status);
    if (status.message() == "Unsupported compression type") response.add_field("Accept-Encoding", "gzip, deflate");
    return response;
  }
  if (action == "ready") {
    if (!get) return wrong_method();
    if (!repository_.find(name, version).is_ok()) return error_response(400, "Model version not ready");
    return {};
  }
  if (action == "config") {
    if (!get) return wrong_method();
    const Result<repository::ServedModelPtr> model = repository_.find(name, version);
    return model.is_ok() ? json_response((*model)->config_json()) : error_response(model.status());
  }
  if (action == "stats") return get ? statistics(name, version) : wrong_method();
  if (action == "generate" || action == "generate_stream") {
    if (exchange->head().method != Method::kPost) return wrong_method();
    return error_response(
        501, fmt::format("'{}' is not supported by this server: send tensors to /v2/models/{}/infer", action, name));
  }
  return not_found_response();
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

Response KServeHandler::route_repository(const ExchangePtr& exchange, const std::vector<std::string>& segments,
                                         bool& answered_later) {
  // /v2/repository[/<repository>]/index and .../models/<model>/(load|unload)
  const bool bare_index = segments.size() == 3 && segments[2] == "index";
  const bool named_index = segments.size() == 4 && segments[3] == "index";
  const bool bare_control = segments.size() == 5 && segments[2] == "models";
  const bool named_control = segments.size() == 6 && segments[3] == "models";
  const std::string& action = segments.back();
  if (!bare_index && !named_index && !((bare_control || named_control) && (action == "load" || action == "unload"))) {
    return not_found_response();
  }
  if (exchange->head().method != Method::kPost) return wrong_method();
  if (named_index || named_control) return error_response(501, "'repository_name' specification is not supported");
  if (bare_index) {
    const Result<bool> ready_only = read_index_body(exchange->body());
    if (!ready_only.is_ok()) return error_response(ready_only.status());
    return json_response(index_json(repository_.index(*ready_only)));
  }
  const std::string& name = segments[3];
  auto done = [exchange](Status status) { exchange->respond(status_response(status)); };
  if (action == "load") {
    Result<std::optional<std::string>> config = read_load_body(exchange->body());
    if (!config.is_ok()) return error_response(config.status());
    answered_later = true;
    repository_.load(name, std::move(config).value(), std::move(done));
    return {};
  }
  if (const Status status = check_unload_body(exchange->body()); !status.is_ok()) return error_response(status);
  answered_later = true;
  repository_.unload(name, std::move(done));
  return {};
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
    FW_RETURN_IF_ERROR(read_infer_body(*body, json_bytes, model->config(), options_.max_input_bytes, *request, wishes));
    return model->prepare(*request);
  };
  if (const Status status = read(); !status.is_ok()) {
    model->statistics().record_failure(schedule::FailureReason::kOther, exchange->received_ns(),
                                       schedule::monotonic_now_ns());
    return status;
  }
  const Coding answer_coding = choose_response_coding(head.find("accept-encoding").value_or(""));
  start_inference(exchange, std::move(model), std::move(request), std::move(wishes), answer_coding);
  return {};
}

}  // namespace flywheel::http
