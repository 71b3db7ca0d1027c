// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/inference_service.h"

#include <fmt/format.h>

#include <utility>

#include "server/protocol/grpc/control_calls.h"
#include "server/protocol/grpc/health_calls.h"
#include "server/protocol/grpc/infer_handler.h"
#include "server/protocol/grpc/reflection_calls.h"
#include "server/protocol/grpc/stream_handler.h"
#include "server/protocol/grpc/unary.h"

namespace flywheel::grpc {
namespace {

const std::string kInference = "/inference.GRPCInferenceService/";

}  // namespace

template <class Request, class Response>
void InferenceService::add_unsupported(const std::string& name, const std::string& message) {
  methods_[kInference + name] = [message](Call& call) {
    return std::make_unique<ProtoHandler<Request, Response>>(
        call, [message](const Request&, Response&) { return unsupported(message); });
  };
}

InferenceService::InferenceService(repository::ModelRepository& repository, ServiceOptions options,
                                   const GrpcOptions& grpc_options)
    : repository_(repository), options_(std::move(options)), grpc_options_(grpc_options) {
  methods_[kInference + "ModelInfer"] = [this](Call& call) {
    return std::make_unique<InferHandler>(call, repository_, grpc_options_);
  };
  methods_[kInference + "ModelStreamInfer"] = [this](Call& call) {
    return std::make_unique<StreamHandler>(call, repository_, grpc_options_);
  };
  add_model_methods();
  add_other_services();
}

std::unique_ptr<CallHandler> InferenceService::open(Call& call) {
  const auto found = methods_.find(std::string_view(call.head().path));
  return found == methods_.end() ? nullptr : found->second(call);
}

void InferenceService::add_model_methods() {
  // From a function of (request, response) to a method.
  auto add = [this]<class Request, class Response>(const std::string& name,
                                                   std::function<Status(const Request&, Response&)> method) {
    methods_[kInference + name] = [method = std::move(method)](Call& call) {
      return std::make_unique<ProtoHandler<Request, Response>>(call, method);
    };
  };
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
        return describe_server(options_.server_name, options_.server_version, response);
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
  methods_[kInference + "RepositoryModelLoad"] = [this](Call& call) { return open_load(call, repository_); };
  methods_[kInference + "RepositoryModelUnload"] = [this](Call& call) { return open_unload(call, repository_); };

  const std::string memory = "Client shared memory is not supported by this server: send tensors in the message";
  add_unsupported<inference::SystemSharedMemoryStatusRequest, inference::SystemSharedMemoryStatusResponse>(
      "SystemSharedMemoryStatus", memory);
  add_unsupported<inference::SystemSharedMemoryRegisterRequest, inference::SystemSharedMemoryRegisterResponse>(
      "SystemSharedMemoryRegister", memory);
  add_unsupported<inference::SystemSharedMemoryUnregisterRequest, inference::SystemSharedMemoryUnregisterResponse>(
      "SystemSharedMemoryUnregister", memory);
  add_unsupported<inference::CudaSharedMemoryStatusRequest, inference::CudaSharedMemoryStatusResponse>(
      "CudaSharedMemoryStatus", memory);
  add_unsupported<inference::CudaSharedMemoryRegisterRequest, inference::CudaSharedMemoryRegisterResponse>(
      "CudaSharedMemoryRegister", memory);
  add_unsupported<inference::CudaSharedMemoryUnregisterRequest, inference::CudaSharedMemoryUnregisterResponse>(
      "CudaSharedMemoryUnregister", memory);
  add_unsupported<inference::TraceSettingRequest, inference::TraceSettingResponse>("TraceSetting",
                                                                                   "the server does not support trace");
  add_unsupported<inference::LogSettingsRequest, inference::LogSettingsResponse>(
      "LogSettings", "the server does not support dynamic logging");
}

void InferenceService::add_other_services() {
  methods_["/grpc.health.v1.Health/Check"] = [this](Call& call) { return open_health_check(call, repository_); };
  methods_["/grpc.health.v1.Health/Watch"] = [this](Call& call) { return open_health_watch(call, repository_); };
  for (const char* version : {"v1", "v1alpha"}) {
    methods_[fmt::format("/grpc.reflection.{}.ServerReflection/ServerReflectionInfo", version)] = open_reflection;
  }
}

}  // namespace flywheel::grpc
