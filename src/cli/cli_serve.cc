// SPDX-License-Identifier: Apache-2.0
// `flywheel serve`: the server until SIGINT or SIGTERM. Flags have the names that Triton's users know.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/resident_memory.h"
#include "cli/verb.h"
#include "flywheel/compiler.h"
#include "server/server.h"
#include "server/settings/access.h"
#include "server/settings/log_settings.h"
#include "server/settings/trace_setting.h"

namespace flywheel::cli {
namespace {

struct ServeFlags {
  server::ServerOptions options;
  std::string control_mode = "none";
  int exit_timeout_s = 30;
  std::vector<std::string> cache_configs, rate_resources;
  std::string rate_limit = "off";
  settings::LogSettings log;
  bool log_quiet = false;
  std::vector<std::string> trace_config, http_restricted_apis, grpc_restricted_protocols;
  std::string http_header_pattern, grpc_header_pattern;
};

// How the thread that loads tells the one that waits for signals: a signal that nobody else sends.
constexpr int kLoadingFailed = SIGUSR1;

// What the server takes beyond its exit timeout to send the last refusals.
constexpr std::chrono::seconds kLastAnswersTime(1);

// Work that cannot be interrupted, such as a step of a model's build, must not keep the process from ending.
void end_process_after(std::chrono::seconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    log(LogLevel::kError, "Exit timeout expired. Exiting immediately.");
    _exit(1);
  }).detach();
}

sigset_t signal_set(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : numbers) sigaddset(&signals, number);
  return signals;
}

Status build_for_server(const std::string& onnx_path, const std::string& engine_path,
                        const engines::KnownShapes& shapes, const std::function<bool()>& keep_going) {
  BuildOptions build;
  build.copy_files = true;
  build.hints = {shapes.max_batch, shapes.dims};
  build.progress = [&](std::string_view, int, int) { return keep_going == nullptr || keep_going(); };
  Result<BuildReport> built = build_engine(onnx_path, engine_path, build);
  give_back_resident_memory();
  FW_ASSIGN_OR_RETURN(BuildReport report, std::move(built));
  for (const std::string& note : report.notes) log(LogLevel::kInfo, "{}", note);
  return Status::ok();
}

bool read_number(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// local,size=1048576
Status read_cache_config(const std::string& text, server::ServerOptions& options) {
  constexpr std::string_view kLocal = "local,size=";
  if (text.starts_with(kLocal) &&
      read_number(std::string_view(text).substr(kLocal.size()), options.response_cache_bytes))
    return Status::ok();
  return invalid_argument("--cache-config is '" + text +
                          "', but must be local,size=<bytes>: this server keeps responses in its own memory");
}

// R1:10, R1:10:0 or R1:10:global: there is one device
Status read_rate_resource(const std::string& text, server::ServerOptions& options) {
  const size_t name_end = text.find(':');
  const std::string name = text.substr(0, name_end);
  std::string_view rest =
      name_end == std::string::npos ? std::string_view() : std::string_view(text).substr(name_end + 1);
  const std::string_view count = rest.substr(0, rest.find(':'));
  const std::string_view device = count.size() == rest.size() ? std::string_view("0") : rest.substr(count.size() + 1);
  uint64_t number = 0, device_number = 0;
  if (!name.empty() && read_number(count, number) && number <= UINT32_MAX &&
      (device == "global" || read_number(device, device_number))) {
    options.rate_limits.resources[name] = static_cast<uint32_t>(number);
    return Status::ok();
  }
  return invalid_argument("--rate-limit-resource is '" + text +
                          "', but must be <name>:<count> or <name>:<count>:<device>");
}

Status serve(const ServeFlags& flags) {
  settings::LogSettings log_settings = flags.log;
  if (flags.log_quiet) log_settings.log_info = false;
  FW_RETURN_IF_ERROR(settings::set_log_settings(log_settings));
  server::ServerOptions options = flags.options;
  FW_ASSIGN_OR_RETURN(options.trace, settings::parse_trace_config(flags.trace_config));
  FW_ASSIGN_OR_RETURN(options.http_restricted_apis,
                      settings::RestrictedApis::parse("--http-restricted-api", flags.http_restricted_apis));
  FW_ASSIGN_OR_RETURN(options.http_forwarded_headers,
                      settings::HeaderPattern::parse("--http-header-forward-pattern", flags.http_header_pattern));
  FW_ASSIGN_OR_RETURN(options.grpc_restricted_protocols,
                      settings::RestrictedApis::parse("--grpc-restricted-protocol", flags.grpc_restricted_protocols,
                                                      "triton-grpc-protocol-"));
  FW_ASSIGN_OR_RETURN(options.grpc_forwarded_fields,
                      settings::HeaderPattern::parse("--grpc-header-forward-pattern", flags.grpc_header_pattern));
  options.control_mode = flags.control_mode == "explicit" ? repository::ControlMode::kExplicit
                         : flags.control_mode == "poll"   ? repository::ControlMode::kPoll
                                                          : repository::ControlMode::kNone;
  for (const std::string& text : flags.cache_configs) FW_RETURN_IF_ERROR(read_cache_config(text, options));
  for (const std::string& text : flags.rate_resources) FW_RETURN_IF_ERROR(read_rate_resource(text, options));
  options.rate_limits.enabled = flags.rate_limit == "execution_count";
  options.build_from_onnx = build_for_server;
  signal(SIGPIPE, SIG_IGN);
  // Blocked in every thread that is started from here on, so that this one can wait for them.
  const sigset_t signals = signal_set({SIGINT, SIGTERM, kLoadingFailed});
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  FW_ASSIGN_OR_RETURN(std::unique_ptr<server::Server> server, server::Server::start(options));
  log(LogLevel::kInfo, "listening for HTTP on {}:{}", options.http_address, server->http_port());
  if (options.allow_grpc) {
    log(LogLevel::kInfo, "listening for gRPC on {}:{}",
        options.grpc_address.empty() ? options.http_address : options.grpc_address, server->grpc_port());
  }
  if (options.allow_metrics) {
    log(LogLevel::kInfo, "metrics at {}://{}:{}/metrics", options.metrics_tls ? "https" : "http",
        options.metrics_address.empty() ? options.http_address : options.metrics_address, server->metrics_port());
  }
  // Loading may take long, and a signal must end it: so it is waited for on a thread of its own.
  Status loaded;
  const pid_t process = getpid();
  std::thread loader([&] {
    loaded = server->wait_until_loaded();
    give_back_resident_memory();
    if (loaded.is_ok()) {
      log(LogLevel::kInfo, "all models are ready");
    } else {
      kill(process, kLoadingFailed);
    }
  });
  int received = 0;
  sigwait(&signals, &received);
  // From now on a second Ctrl-C ends the process at once.
  const sigset_t stop_signals = signal_set({SIGINT, SIGTERM});
  pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);
  log(LogLevel::kInfo, "stopping: answering what was accepted, for {} s at most", flags.exit_timeout_s);
  end_process_after(std::chrono::seconds(flags.exit_timeout_s) + kLastAnswersTime);
  const Status stopped = server->stop(int64_t{1000} * flags.exit_timeout_s);
  loader.join();
  return received == kLoadingFailed ? loaded : stopped;
}

// Triton's names for gRPC; it has none for HTTP.
void add_tls(CLI::App& verb, const std::string& prefix, const std::string& protocol, net::TlsOptions& tls) {
  verb.add_option("--" + prefix + "-use-ssl", tls.enabled, "TLS for " + protocol)->capture_default_str();
  verb.add_option("--" + prefix + "-use-ssl-mutual", tls.mutual, "Clients have to show a certificate, too")
      ->capture_default_str();
  verb.add_option("--" + prefix + "-server-cert", tls.certificate_file, "PEM file: the server's certificate and chain")
      ->type_name("FILE");
  verb.add_option("--" + prefix + "-server-key", tls.key_file, "PEM file: its key")->type_name("FILE");
  verb.add_option("--" + prefix + "-root-cert", tls.root_file, "PEM file: who may vouch for clients")
      ->type_name("FILE");
}

}  // namespace

void add_serve(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<ServeFlags>();
  server::ServerOptions& options = flags->options;
  CLI::App* verb =
      app.add_subcommand("serve", "Serve a model repository over HTTP and gRPC (KServe v2, Triton's extensions)");
  verb->add_option("--model-repository", options.model_repositories, "Folder of models; may be repeated")
      ->required()
      ->type_name("DIR")
      ->allow_extra_args(false);
  verb->add_option("--model-control-mode", flags->control_mode,
                   "none: all models at start; explicit: those of --load-model, others by request; poll: all, and as "
                   "their folders change")
      ->check(CLI::IsMember({"none", "explicit", "poll"}))
      ->capture_default_str();
  verb->add_option("--repository-poll-secs", options.repository_poll_s, "Poll mode: seconds between two looks")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  verb->add_option("--load-model", options.load_models,
                   "Explicit mode: a model to load at start; * for all; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  verb->add_option("--strict-readiness", options.strict_readiness, "Not ready while any model is not")
      ->capture_default_str();
  verb->add_option("--exit-on-error", options.exit_on_error, "End when a model does not load at start")
      ->capture_default_str();
  verb->add_flag("--disable-auto-complete-config{false}", options.auto_complete_config, "Take config.pbtxt as it is");
  verb->add_option("--model-load-thread-count", options.model_load_threads, "Models loaded at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option("--backend-directory", options.backend_folder,
                   "Where libflywheel_NAME.so of native backends are, besides the models' folders")
      ->type_name("DIR");
  verb->add_option("--cache-dir", options.cache_folder,
                   "Where engines built from ONNX are kept; default: beside each model")
      ->type_name("DIR");
  verb->add_option("--cache-config", flags->cache_configs,
                   "local,size=<bytes>: memory for the responses of models that enable response_cache")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--response-cache-byte-size", options.response_cache_bytes, "The same, as a number of bytes");
  verb->add_option("--rate-limit", flags->rate_limit,
                   "execution_count: instances run by their rate_limiter's resources and priority")
      ->check(CLI::IsMember({"off", "execution_count"}))
      ->capture_default_str();
  verb->add_option("--rate-limit-resource", flags->rate_resources,
                   "<name>:<count>: how much there is of a resource; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--cores", options.cores, "Cores that models use together; 0: all that this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  verb->add_option("--http-address", options.http_address,
                   "Where HTTP listens; unix:<path> for a socket in the file system")
      ->capture_default_str();
  verb->add_option("--http-port", options.http_port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_flag("--reuse-http-port", options.reuse_http_port, "Several servers may share the port");
  verb->add_option("--http-thread-count", options.http_threads, "0: one for every two cores, 8 at most")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  verb->add_option("--http-max-input-size", options.http_max_input_bytes, "Largest body in bytes")
      ->capture_default_str();
  verb->add_option("--allow-grpc", options.allow_grpc, "Serve gRPC")->capture_default_str();
  verb->add_option("--grpc-address", options.grpc_address, "Where gRPC listens; default: as --http-address");
  verb->add_option("--grpc-port", options.grpc_port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_flag("--reuse-grpc-port", options.reuse_grpc_port, "Several servers may share the port");
  verb->add_option("--grpc-thread-count,--grpc-infer-thread-count", options.grpc_threads,
                   "0: one for every two cores, 8 at most")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  add_tls(*verb, "http", "HTTP", options.http_tls);
  add_tls(*verb, "grpc", "gRPC", options.grpc_tls);
  verb->add_option("--metrics-use-ssl", options.metrics_tls, "TLS for metrics, with HTTP's files")
      ->capture_default_str();
  verb->add_option(
          "--busy-poll-us", options.busy_poll_us,
          "How long an HTTP or gRPC thread that gets requests in quick succession asks for the next one before "
          "it sleeps; 0: not at all; -1: 50 with two cores or more")
      ->check(CLI::Range(-1, 10'000))
      ->capture_default_str();
  verb->add_option("--grpc-infer-response-compression-level", options.grpc.response_compression,
                   "none; low, medium or high: responses are compressed where the client takes it")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, grpc::CompressionLevel>{{"none", grpc::CompressionLevel::kNone},
                                                        {"low", grpc::CompressionLevel::kLow},
                                                        {"medium", grpc::CompressionLevel::kMedium},
                                                        {"high", grpc::CompressionLevel::kHigh}}));
  verb->add_option("--grpc-keepalive-time", options.grpc.keepalive_time_ms,
                   "Milliseconds of silence after which a client is pinged")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max() / 1'000'000))
      ->capture_default_str();
  verb->add_option("--grpc-keepalive-timeout", options.grpc.keepalive_timeout_ms,
                   "Milliseconds after which a client that does not answer a ping is gone")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max() / 1'000'000))
      ->capture_default_str();
  verb->add_option("--grpc-keepalive-permit-without-calls", options.grpc.keepalive_without_calls,
                   "Ping clients without calls, too")
      ->capture_default_str();
  verb->add_option("--grpc-max-connection-age", options.grpc.max_connection_age_ms,
                   "Milliseconds after which a client is told to connect anew; 0: never")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max() / 1'000'000))
      ->capture_default_str();
  verb->add_option("--grpc-max-connection-age-grace", options.grpc.max_connection_age_grace_ms,
                   "Milliseconds that its calls have then; 0: as long as they take")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max() / 1'000'000))
      ->capture_default_str();
  verb->add_option("--allow-metrics", options.allow_metrics, "Serve /metrics")->capture_default_str();
  verb->add_option("--metrics-address", options.metrics_address, "Default: as --http-address");
  verb->add_option("--metrics-port", options.metrics_port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_option("--id", options.server_id, "The server's name in its metadata")->capture_default_str();
  verb->add_option("--exit-timeout-secs", flags->exit_timeout_s, "How long requests may take when the server stops")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  verb->add_option("--allow-client-shm", options.allow_client_shared_memory,
                   "Clients on this machine may register shared memory and send tensors through it")
      ->capture_default_str();
  verb->add_option("--trace-config", flags->trace_config,
                   "level=OFF|TIMESTAMPS|TENSORS, rate=, count=, mode=triton, triton,file=, triton,log-frequency=; may "
                   "be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--http-restricted-api", flags->http_restricted_apis,
                   "<api>[,<api>...]:<header>=<value>: these calls need the header; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--http-header-forward-pattern", flags->http_header_pattern,
                   "Headers whose name this expression matches become parameters of inference requests");
  verb->add_option("--grpc-restricted-protocol", flags->grpc_restricted_protocols,
                   "<api>[,<api>...]:<key>=<value>: these calls need the metadata triton-grpc-protocol-<key>; may be "
                   "repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--grpc-header-forward-pattern", flags->grpc_header_pattern,
                   "Metadata whose name this expression matches becomes parameters of inference requests");
  verb->add_flag("--log-verbose", flags->log.log_verbose_level, "Log more; 0: do not");
  verb->add_option("--log-info", flags->log.log_info, "Log information")->capture_default_str();
  verb->add_option("--log-warning", flags->log.log_warning, "Log warnings")->capture_default_str();
  verb->add_option("--log-error", flags->log.log_error, "Log errors")->capture_default_str();
  verb->add_option("--log-format", flags->log.log_format, "default or ISO8601")
      ->check(CLI::IsMember({"default", "ISO8601"}))
      ->capture_default_str();
  verb->add_option("--log-file", flags->log.log_file, "Where the log goes; default: standard error");
  verb->add_flag("--log-quiet", flags->log_quiet, "Log warnings and errors only");
  verb->callback([flags, &chosen] { chosen = [flags] { return serve(*flags); }; });
}

}  // namespace flywheel::cli
