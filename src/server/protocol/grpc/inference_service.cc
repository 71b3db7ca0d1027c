// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/inference_service.h"

#include <fmt/format.h>

#include <utility>

#include "base/version.h"
#include "server/protocol/grpc/control_calls.h"
#include "server/protocol/grpc/health_calls.h"
#include "server/protocol/grpc/infer_handler.h"
#include "server/protocol/grpc/reflection_calls.h"
#include "server/protocol/grpc/setting_calls.h"
#include "server/protocol/grpc/stream_handler.h"
#include "server/protocol/grpc/unary.h"
#include "server/protocol/http/parser.h"

namespace flywheel::grpc {
namespace {

const std::string kInference = "/inference.GRPCInferenceService/";

}  // namespace

template <class Request, class Response>
void InferenceService::add(const std::string& name, std::function<Status(const Request&, Response&)> method) {
  methods_[kInference + name].open = [method = std::move(method)](Call& call) {
    return std::make_unique<ProtoHandler<Request, Response>>(call, method);
  };
}

InferenceService::InferenceService(repository::ModelRepository& repository, ServiceOptions options,
                                   const GrpcOptions& grpc_options)
    : repository_(repository),
      options_(std::move(options)),
      grpc_options_(grpc_options),
      sources_{repository, options_.shared_memory, options_.tracer, options_.forwarded_fields} {
  methods_[kInference + "ModelInfer"].open = [this](Call& call) {
    return std::make_unique<InferHandler>(call, sources_, grpc_options_);
  };
  methods_[kInference + "ModelStreamInfer"].open = [this](Call& call) {
    return std::make_unique<StreamHandler>(call, sources_, grpc_options_);
  };
  add_model_methods();
  add_memory_methods();
  add_setting_methods();
  add_other_services();
  set_categories();
}

void InferenceService::set_categories() {
  using settings::ApiCategory;
  constexpr std::pair<std::string_view, ApiCategory> kCategories[] = {
      {"/grpc.health.v1.Health/Check", ApiCategory::kHealth},
      {"/grpc.health.v1.Health/Watch", ApiCategory::kHealth},
      {"ServerLive", ApiCategory::kHealth},
      {"ServerReady", ApiCategory::kHealth},
      {"ModelReady", ApiCategory::kHealth},
      {"ServerMetadata", ApiCategory::kMetadata},
      {"ModelMetadata", ApiCategory::kMetadata},
      {"ModelInfer", ApiCategory::kInference},
      {"ModelStreamInfer", ApiCategory::kInference},
      {"SystemSharedMemoryStatus", ApiCategory::kSharedMemory},
      {"SystemSharedMemoryRegister", ApiCategory::kSharedMemory},
      {"SystemSharedMemoryUnregister", ApiCategory::kSharedMemory},
      {"CudaSharedMemoryStatus", ApiCategory::kSharedMemory},
      {"CudaSharedMemoryRegister", ApiCategory::kSharedMemory},
      {"CudaSharedMemoryUnregister", ApiCategory::kSharedMemory},
      {"ModelConfig", ApiCategory::kModelConfig},
      {"RepositoryIndex", ApiCategory::kModelRepository},
      {"RepositoryModelLoad", ApiCategory::kModelRepository},
      {"RepositoryModelUnload", ApiCategory::kModelRepository},
      {"ModelStatistics", ApiCategory::kStatistics},
      {"TraceSetting", ApiCategory::kTrace},
      {"LogSettings", ApiCategory::kLogging}};
  for (const auto& [name, category] : kCategories) {
    const auto found = methods_.find(name.starts_with('/') ? std::string(name) : kInference + std::string(name));
    if (found != methods_.end()) found->second.category = category;
  }
}

std::unique_ptr<CallHandler> InferenceService::open(Call& call) {
  const auto found = methods_.find(std::string_view(call.head().path));
  if (found == methods_.end()) return nullptr;
  const Method& method = found->second;
  if (method.category) {
    const std::string* missing = options_.restricted.missing_header(
        *method.category, [&](std::string_view wanted) -> std::optional<std::string_view> {
          for (const auto& [name, value] : call.head().fields) {
            if (http::equals_ignoring_case(name, wanted)) return value;
          }
          return std::nullopt;
        });
    if (missing != nullptr) {
      call.finish(
          {StatusCode::kUnavailable, fmt::format("This protocol is restricted, expecting header '{}'", *missing)});
      return nullptr;
    }
  }
  return method.open(call);
}

void InferenceService::add_model_methods() {
  using std::function;
  add("ServerLive",
      function([](const inference::ServerLiveRequest&, inference::ServerLiveResponse& response) -> Status {
        response.set_live(true);
        return {};
      }));
  add("ServerReady",
      function([this](const inference::ServerReadyRequest&, inference::ServerReadyResponse& response) -> Status {
        response.set_ready(repository_.is_ready());
        return {};
      }));
  add("ServerMetadata",
      function([this](const inference::ServerMetadataRequest&, inference::ServerMetadataResponse& response) {
        return describe_server(options_.server_name, version(), response);
      }));
  add("ModelReady",
      function([this](const inference::ModelReadyRequest& request, inference::ModelReadyResponse& response) {
        return tell_model_ready(repository_, request, response);
      }));
  add("ModelMetadata",
      function([this](const inference::ModelMetadataRequest& request, inference::ModelMetadataResponse& response) {
        return describe_model(repository_, request, response);
      }));
  add("ModelConfig",
      function([this](const inference::ModelConfigRequest& request, inference::ModelConfigResponse& response) {
        return give_config(repository_, request, response);
      }));
  add("ModelStatistics",
      function([this](const inference::ModelStatisticsRequest& request, inference::ModelStatisticsResponse& response) {
        return give_statistics(repository_, request, response);
      }));
  add("RepositoryIndex",
      function([this](const inference::RepositoryIndexRequest& request, inference::RepositoryIndexResponse& response) {
        return give_index(repository_, request, response);
      }));
  methods_[kInference + "RepositoryModelLoad"].open = [this](Call& call) { return open_load(call, repository_); };
  methods_[kInference + "RepositoryModelUnload"].open = [this](Call& call) { return open_unload(call, repository_); };
}

void InferenceService::add_memory_methods() {
  using std::function;
  const std::shared_ptr<shared_memory::RegionRegistry> regions = options_.shared_memory;
  add("SystemSharedMemoryStatus", function([regions](const inference::SystemSharedMemoryStatusRequest& request,
                                                     inference::SystemSharedMemoryStatusResponse& response) {
        return give_regions(regions.get(), request, response);
      }));
  add("SystemSharedMemoryRegister", function([regions](const inference::SystemSharedMemoryRegisterRequest& request,
                                                       inference::SystemSharedMemoryRegisterResponse&) {
        if (regions == nullptr) return no_shared_memory();
        return regions->register_region(request.name(), request.key(), request.offset(), request.byte_size());
      }));
  add("SystemSharedMemoryUnregister", function([regions](const inference::SystemSharedMemoryUnregisterRequest& request,
                                                         inference::SystemSharedMemoryUnregisterResponse&) {
        return regions == nullptr ? no_shared_memory() : regions->unregister(request.name());
      }));
  add("CudaSharedMemoryStatus", function([regions](const inference::CudaSharedMemoryStatusRequest& request,
                                                   inference::CudaSharedMemoryStatusResponse&) {
        return regions == nullptr ? no_shared_memory() : shared_memory::cuda_status_error(request.name());
      }));
  add("CudaSharedMemoryRegister", function([regions](const inference::CudaSharedMemoryRegisterRequest& request,
                                                     inference::CudaSharedMemoryRegisterResponse&) {
        return regions == nullptr ? no_shared_memory() : shared_memory::cuda_register_error(request.name());
      }));
  add("CudaSharedMemoryUnregister", function([regions](const inference::CudaSharedMemoryUnregisterRequest&,
                                                       inference::CudaSharedMemoryUnregisterResponse&) {
        return regions == nullptr ? no_shared_memory() : regions->check_enabled();
      }));
}

void InferenceService::add_setting_methods() {
  using std::function;
  add("TraceSetting",
      function([this](const inference::TraceSettingRequest& request, inference::TraceSettingResponse& response) {
        return change_trace_setting(repository_, options_.tracer.get(), request, response);
      }));
  add("LogSettings",
      function([](const inference::LogSettingsRequest& request, inference::LogSettingsResponse& response) {
        return change_log_settings(request, response);
      }));
}

void InferenceService::add_other_services() {
  methods_["/grpc.health.v1.Health/Check"].open = [this](Call& call) { return open_health_check(call, repository_); };
  methods_["/grpc.health.v1.Health/Watch"].open = [this](Call& call) { return open_health_watch(call, repository_); };
  for (const char* version : {"v1", "v1alpha"}) {
    methods_[fmt::format("/grpc.reflection.{}.ServerReflection/ServerReflectionInfo", version)].open = open_reflection;
  }
}

}  // namespace flywheel::grpc
