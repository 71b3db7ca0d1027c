// SPDX-License-Identifier: Apache-2.0
// The whole server: the model repository, the inference protocol's listeners and the metrics' one. The command line
// makes one from its flags, waits, and stops it; it handles no signals itself. It knows the compiler only as a function
// that the caller may give it.
//
//   auto server = flywheel::server::Server::start(options);
//   ... wait for a signal ...
//   server.value()->stop(30'000);
//
// Threads: any may call; stop() may be called while another waits until all is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/protocol/grpc/grpc_server.h"
#include "server/protocol/http/http_server.h"
#include "server/protocol/http/kserve_handler.h"
#include "server/repository/model_repository.h"
#include "server/settings/access.h"
#include "server/settings/tracer.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::server {

struct ServerOptions {
  std::vector<std::string> model_repositories;
  repository::ControlMode control_mode = repository::ControlMode::kNone;
  int repository_poll_s = 15;
  std::vector<std::string> load_models;  // explicit mode: what to load at start; "*": all
  bool strict_readiness = true;
  bool exit_on_error = true;  // wait_until_loaded() reports models that did not load
  bool auto_complete_config = true;
  int model_load_threads = 4;
  std::string backend_folder;  // of native backends, besides the models' own; "": none
  std::string cache_folder;    // of engines built from ONNX; "": beside each model
  int cores = 0;               // that models use together; 0: all that this process may use
  int execution_slots = 0;     // see RepositoryOptions
  // 0: no response cache.
  uint64_t response_cache_bytes = 0;
  repository::RateLimits rate_limits;

  std::string http_address = "0.0.0.0";
  int http_port = 8000;  // 0: any free one
  bool reuse_http_port = false;
  int http_threads = 0;  // 0: one for every two cores, 8 at most
  uint64_t http_max_input_bytes = 64 << 20;
  bool allow_grpc = true;
  std::string grpc_address;  // "": as http_address
  int grpc_port = 8001;      // 0: any free one
  bool reuse_grpc_port = false;
  int grpc_threads = 0;  // as http_threads
  // How long a thread of both that gets requests in quick succession asks for the next one before it sleeps, so that
  // nobody waits for it to wake. 0: not at all; -1: 50 where there is a core for it, 0 on a single one.
  int busy_poll_us = -1;
  bool allow_metrics = true;
  std::string metrics_address;  // "": as http_address
  int metrics_port = 8002;      // 0: any free one
  net::TlsOptions http_tls;     // the metrics' too where metrics_tls says so
  net::TlsOptions grpc_tls;
  bool metrics_tls = false;
  std::string server_id = "flywheel";
  bool allow_client_shared_memory = false;
  settings::TraceSetting trace;
  settings::RestrictedApis http_restricted_apis;
  settings::HeaderPattern http_forwarded_headers;
  settings::RestrictedApis grpc_restricted_protocols;
  settings::HeaderPattern grpc_forwarded_fields;
  http::HttpOptions http;  // limits and time-outs; names, addresses, ports and threads are taken from above
  grpc::GrpcOptions grpc;  // the same for gRPC

  // Builds an engine from an ONNX file, atomically or not; see EngineBuilder. Empty: ONNX files are refused.
  engines::EngineBuilder build_from_onnx;
  // Empty: Engine::load. Tests give another one.
  engines::EngineLoader load_engine;
};

class Server {
 public:
  // Listens, and answers health requests, when it returns; models load in the background.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  ~Server();  // stops without waiting
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until every model is loaded or has failed to. With exit_on_error, failures are returned: stop the server then.
  Status wait_until_loaded() const;
  bool is_ready() const { return repository_->is_ready(); }
  uint16_t http_port() const { return http_->port(); }
  uint16_t grpc_port() const { return grpc_ != nullptr ? grpc_->port() : uint16_t{0}; }
  uint16_t metrics_port() const { return metrics_ != nullptr ? metrics_->port() : uint16_t{0}; }
  repository::ModelRepository& models() { return *repository_; }
  http::HttpCounts http_counts() const { return http_->counts(); }
  grpc::GrpcCounts grpc_counts() const { return grpc_ != nullptr ? grpc_->counts() : grpc::GrpcCounts(); }

  // Not ready from now on; takes no new connections, answers new requests with 503 and everything accepted before as
  // usual, without waiting for batches to fill; then ends. kDeadlineExceeded says what was left when the time was up.
  Status stop(int64_t timeout_ms);

 private:
  explicit Server(const ServerOptions& options);
  Status start_listening(const ServerOptions& options);
  Status start_grpc(const ServerOptions& options);
  std::string collect_metrics() const;

  const bool exit_on_error_;
  std::unique_ptr<repository::ModelRepository> repository_;
  std::shared_ptr<shared_memory::RegionRegistry> regions_;
  std::shared_ptr<settings::Tracer> tracer_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<grpc::GrpcServer> grpc_;
  std::unique_ptr<http::HttpServer> metrics_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

}  // namespace flywheel::server
