// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_info.h"
#include "base/log.h"
#include "flywheel/engine.h"
#include "server/protocol/grpc/inference_service.h"
#include "server/protocol/prometheus/metrics_handler.h"
#include "server/protocol/prometheus/metrics_text.h"
#include "server/schedule/timeline.h"

namespace flywheel::server {
namespace {

constexpr int kMaxHttpThreads = 8;
constexpr int kBusyPollUs = 50;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kAnswerTimeMs = 500;

Status check_port(int port, std::string_view flag) {
  if (port >= 0 && port <= std::numeric_limits<uint16_t>::max()) return {};
  return invalid_argument(std::string(flag) + " is " + std::to_string(port) + ", but ports go from 0 to 65535");
}

repository::RepositoryOptions repository_options(const ServerOptions& options, const Machine& machine) {
  repository::RepositoryOptions result;
  result.paths = options.model_repositories;
  result.control_mode = options.control_mode;
  result.poll_interval_ms = int64_t{1000} * options.repository_poll_s;
  result.load_at_start = options.load_models;
  result.strict_readiness = options.strict_readiness;
  result.load_threads = options.model_load_threads;
  result.cores = options.cores > 0 ? options.cores : machine.cores;
  result.execution_slots = options.execution_slots;
  if (options.response_cache_bytes > 0)
    result.loader.cache = std::make_shared<schedule::ResponseCache>(options.response_cache_bytes);
  result.loader.rate_limits = options.rate_limits;
  result.loader.auto_complete = options.auto_complete_config;
  result.loader.backend_folder = options.backend_folder;
  result.loader.engines.folder = options.cache_folder;
  result.loader.engines.machine = machine.fingerprint() + "/" + std::to_string(result.cores);
  result.loader.engines.build = options.build_from_onnx;
  result.loader.engines.load = options.load_engine;
  if (!options.load_engine) {
    // Copied: operators write new files over those that are served.
    result.loader.engines.load = [](const std::string& path) { return Engine::load(path, {.copy = true}); };
  }
  return result;
}

// Two listeners at one place: the second would fail with the system's word for it, which names no flag.
Status check_listeners(const ServerOptions& options) {
  struct Place {
    std::string flag, address;
    int port;
  };
  const std::string& http = options.http_address;
  std::vector<Place> places = {{"http", http, options.http_port}};
  if (options.allow_grpc)
    places.push_back({"grpc", options.grpc_address.empty() ? http : options.grpc_address, options.grpc_port});
  if (options.allow_metrics)
    places.push_back(
        {"metrics", options.metrics_address.empty() ? http : options.metrics_address, options.metrics_port});
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Place &a = places[j], &b = places[i];
      if (a.address != b.address) continue;
      if (a.address.starts_with("unix:")) {
        return invalid_argument(
            fmt::format("{} is where both --{}-address and --{}-address listen: give --{}-address another path, or a "
                        "network address",
                        a.address, a.flag, b.flag, b.flag));
      }
      if (a.port == 0 || a.port != b.port) continue;
      return invalid_argument(
          fmt::format("--{}-port and --{}-port are both {}: give them different ports", a.flag, b.flag, a.port));
    }
  }
  return {};
}

}  // namespace

Server::Server(const ServerOptions& options) : exit_on_error_(options.exit_on_error) {}

Server::~Server() { (void)stop(0); }

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  if (options.model_repositories.empty())
    return invalid_argument("no model repository: give one with --model-repository");
  FW_RETURN_IF_ERROR(check_port(options.http_port, "--http-port"));
  FW_RETURN_IF_ERROR(check_port(options.grpc_port, "--grpc-port"));
  FW_RETURN_IF_ERROR(check_port(options.metrics_port, "--metrics-port"));
  FW_RETURN_IF_ERROR(check_listeners(options));
  if (options.model_load_threads < 1) return invalid_argument("--model-load-thread-count must be at least 1");
  if (options.http_threads < 0)
    return invalid_argument("--http-thread-count must be at least 1, or 0 for one for every two cores");
  if (options.grpc_threads < 0) return invalid_argument("--grpc-thread-count must be at least 1");
  if (options.metrics_tls && !options.http_tls.enabled) {
    return invalid_argument("--metrics-use-ssl takes HTTP's certificate: give --http-use-ssl true, too");
  }
  FW_ASSIGN_OR_RETURN(const Machine machine, detect_machine());
  std::unique_ptr<Server> server(new Server(options));
  FW_RETURN_IF_ERROR(settings::Tracer::check(options.trace));
  shared_memory::RegistryOptions shared_memory;
  shared_memory.enabled = options.allow_client_shared_memory;
  server->regions_ = std::make_shared<shared_memory::RegionRegistry>(shared_memory);
  server->tracer_ = std::make_shared<settings::Tracer>(options.trace);
  server->repository_ = std::make_unique<repository::ModelRepository>(repository_options(options, machine));
  ServerOptions listening = options;
  const int threads = std::clamp(machine.cores / 2, 1, kMaxHttpThreads);
  if (listening.http_threads == 0) listening.http_threads = threads;
  if (listening.grpc_threads == 0) listening.grpc_threads = threads;
  if (listening.busy_poll_us < 0) listening.busy_poll_us = machine.cores > 1 ? kBusyPollUs : 0;
  FW_RETURN_IF_ERROR(server->start_listening(listening));
  server->repository_->start();
  return server;
}

Status Server::start_listening(const ServerOptions& options) {
  http::HttpOptions inference = options.http;
  inference.name = "HTTP service";
  inference.address = options.http_address;
  inference.port = static_cast<uint16_t>(options.http_port);
  inference.reuse_port = options.reuse_http_port;
  inference.threads = options.http_threads;
  inference.tls = options.http_tls;
  inference.busy_poll_us = options.busy_poll_us;
  http::KServeOptions protocol;
  protocol.server_name = options.server_id;
  protocol.shared_memory = regions_;
  protocol.tracer = tracer_;
  protocol.restricted = options.http_restricted_apis;
  protocol.forwarded_headers = options.http_forwarded_headers;
  protocol.max_input_bytes = options.http_max_input_bytes;
  protocol.max_binary_body_bytes = std::max(protocol.max_binary_body_bytes, options.http_max_input_bytes);
  FW_ASSIGN_OR_RETURN(http_, http::HttpServer::start(
                                 inference, std::make_shared<http::KServeHandler>(*repository_, std::move(protocol))));
  if (options.allow_grpc) FW_RETURN_IF_ERROR(start_grpc(options));
  if (!options.allow_metrics) return {};
  http::HttpOptions metrics = options.http;
  metrics.name = "Metrics service";
  metrics.address = options.metrics_address.empty() ? options.http_address : options.metrics_address;
  metrics.port = static_cast<uint16_t>(options.metrics_port);
  metrics.threads = 1;
  if (options.metrics_tls) metrics.tls = options.http_tls;
  FW_ASSIGN_OR_RETURN(metrics_, http::HttpServer::start(metrics, std::make_shared<prometheus::MetricsHandler>(
                                                                     [this] { return collect_metrics(); })));
  return {};
}

Status Server::start_grpc(const ServerOptions& options) {
  grpc::GrpcOptions listening = options.grpc;
  listening.address = options.grpc_address.empty() ? options.http_address : options.grpc_address;
  listening.port = static_cast<uint16_t>(options.grpc_port);
  listening.reuse_port = options.reuse_grpc_port;
  listening.threads = options.grpc_threads;
  listening.tls = options.grpc_tls;
  listening.busy_poll_us = options.busy_poll_us;
  grpc::ServiceOptions protocol;
  protocol.server_name = options.server_id;
  protocol.shared_memory = regions_;
  protocol.tracer = tracer_;
  protocol.restricted = options.grpc_restricted_protocols;
  protocol.forwarded_fields = options.grpc_forwarded_fields;
  listening.keep_fields =
      options.grpc_restricted_protocols.restricts_any() || !options.grpc_forwarded_fields.is_empty();
  auto service = std::make_shared<grpc::InferenceService>(*repository_, std::move(protocol), listening);
  FW_ASSIGN_OR_RETURN(grpc_, grpc::GrpcServer::start(listening, std::move(service)));
  return {};
}

std::string Server::collect_metrics() const {
  const std::vector<repository::ServedModelPtr> models = repository_->table().ready_models();
  return prometheus::render_metrics({models, http_->counts(), grpc_counts(), repository_->is_ready()});
}

Status Server::wait_until_loaded() const {
  const Status status = repository_->wait_until_started();
  if (exit_on_error_) return status;
  if (!status.is_ok()) log(LogLevel::kWarning, "serving without the models that did not load: {}", status.message());
  return {};
}

Status Server::stop(int64_t timeout_ms) {
  std::lock_guard lock(stop_mutex_);
  if (stopped_) return {};
  stopped_ = true;
  const int64_t deadline_ns = schedule::monotonic_now_ns() + timeout_ms * kNsPerMs;
  // New requests are refused before models stop, so that only what was accepted is left for them.
  if (http_ != nullptr) http_->begin_drain();
  if (grpc_ != nullptr) grpc_->begin_drain();
  // A little less time for models than for connections, so that the answer "not in time" can still be sent.
  const int64_t grace_ms = timeout_ms - std::min(timeout_ms / 4, kAnswerTimeMs);
  std::thread models([this, grace_ms] { repository_->stop(grace_ms * kNsPerMs); });
  Status status;
  auto stop_listener = [&](auto& listener) {
    if (listener == nullptr) return;
    const Status stopped =
        listener->stop(std::max<int64_t>(0, (deadline_ns - schedule::monotonic_now_ns()) / kNsPerMs));
    if (status.is_ok()) status = stopped;
  };
  stop_listener(http_);
  stop_listener(grpc_);
  models.join();
  if (metrics_ != nullptr) (void)metrics_->stop(std::min<int64_t>(timeout_ms, 100));
  if (status.is_ok()) log(LogLevel::kInfo, "all requests are answered; the server has stopped");
  return status;
}

}  // namespace flywheel::server
