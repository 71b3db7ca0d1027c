// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/control_calls.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/protocol/grpc/infer_request.h"
#include "server/protocol/grpc/unary.h"
#include "server/protocol/http/model_documents.h"

namespace flywheel::grpc {
namespace {

using repository::ServedModel;
using repository::ServedModelPtr;
using schedule::DurationCount;

void set_duration(inference::StatisticDuration& out, const DurationCount& duration) {
  out.set_count(duration.count);
  out.set_ns(duration.ns);
}

template <class Add>
void add_tensors(const std::vector<config::TensorConfig>& tensors, bool batched, Add&& add) {
  for (const config::TensorConfig& tensor : tensors) {
    inference::ModelMetadataResponse::TensorMetadata& out = *add();
    out.set_name(tensor.name);
    out.set_datatype(std::string(config::protocol_name(tensor.data_type)));
    if (batched) out.add_shape(-1);
    for (int64_t dim : tensor.dims) out.add_shape(dim);
  }
}

void fill_statistics(const ServedModel& model, inference::ModelStatistics& out) {
  const schedule::StatisticsSnapshot statistics = model.statistics().snapshot();
  out.set_name(model.name());
  out.set_version(std::to_string(model.version()));
  out.set_last_inference(static_cast<uint64_t>(statistics.last_inference_ms));
  out.set_inference_count(statistics.inference_count);
  out.set_execution_count(statistics.execution_count);
  inference::InferStatistics& sums = *out.mutable_inference_stats();
  set_duration(*sums.mutable_success(), statistics.success);
  set_duration(*sums.mutable_fail(), statistics.fail);
  set_duration(*sums.mutable_queue(), statistics.queue);
  set_duration(*sums.mutable_compute_input(), statistics.compute_input);
  set_duration(*sums.mutable_compute_infer(), statistics.compute_infer);
  set_duration(*sums.mutable_compute_output(), statistics.compute_output);
  set_duration(*sums.mutable_cache_hit(), statistics.cache_hit);
  set_duration(*sums.mutable_cache_miss(), statistics.cache_miss);
  for (const auto& [size, batch] : statistics.by_batch_size) {
    inference::InferBatchStatistics& row = *out.add_batch_stats();
    row.set_batch_size(static_cast<uint64_t>(size));
    set_duration(*row.mutable_compute_input(), batch.compute_input);
    set_duration(*row.mutable_compute_infer(), batch.compute_infer);
    set_duration(*row.mutable_compute_output(), batch.compute_output);
  }
}

Status no_repository_name() { return unsupported("'repository_name' specification is not supported"); }

Result<repository::LoadOverrides> read_load_parameters(inference::RepositoryModelLoadRequest& request) {
  constexpr std::string_view kFile = "file:";
  repository::LoadOverrides overrides;
  for (auto& [key, value] : *request.mutable_parameters()) {
    if (key == "config") {
      if (!value.has_string_param()) {
        return invalid_argument(fmt::format("invalid value type for load parameter '{}', expected string_param.", key));
      }
      overrides.config_json = std::move(*value.mutable_string_param());
    } else if (key.starts_with(kFile)) {
      if (!value.has_bytes_param()) {
        return invalid_argument(fmt::format("invalid value type for load parameter '{}', expected bytes_param.", key));
      }
      overrides.files[key.substr(kFile.size())] = std::move(*value.mutable_bytes_param());
    } else {
      return invalid_argument(fmt::format("unrecognized load parameter '{}'.", key));
    }
  }
  return overrides;
}

// Loading and unloading: the answer comes when the repository is done.
class LoadHandler : public UnaryHandler {
 public:
  LoadHandler(Call& call, repository::ModelRepository& repository) : UnaryHandler(call), repository_(repository) {}

 protected:
  void start(http::Body message) override {
    inference::RepositoryModelLoadRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return answer(GrpcStatus{StatusCode::kInternal, "the request cannot be parsed"});
    }
    if (!request.repository_name().empty()) return answer(to_grpc(no_repository_name()));
    Result<repository::LoadOverrides> overrides = read_load_parameters(request);
    if (!overrides.is_ok()) return answer(to_grpc(overrides.status()));
    repository_.load(request.model_name(), std::move(overrides).value(), done());
  }
  repository::ModelRepository::Done done() {
    return [call = call().shared_from_this(), this](const Status& status) {
      if (!status.is_ok()) return answer(to_grpc(status));
      OutMessage empty;
      empty.seal(false);
      answer(std::move(empty));
    };
  }
  repository::ModelRepository& repository_;
};

class UnloadHandler : public LoadHandler {
 public:
  using LoadHandler::LoadHandler;

 protected:
  void start(http::Body message) override {
    inference::RepositoryModelUnloadRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return answer(GrpcStatus{StatusCode::kInternal, "the request cannot be parsed"});
    }
    if (!request.repository_name().empty()) return answer(to_grpc(no_repository_name()));
    const auto dependents = request.parameters().find("unload_dependents");
    if (dependents != request.parameters().end() && !dependents->second.has_bool_param()) {
      return answer(
          to_grpc(invalid_argument("invalid value type for 'unload_dependents' parameter, expected bool_param.")));
    }
    const bool with_steps = dependents != request.parameters().end() && dependents->second.bool_param();
    repository_.unload(request.model_name(), done(), with_steps);
  }
};

}  // namespace

Status describe_server(std::string_view name, std::string_view version, inference::ServerMetadataResponse& response) {
  response.set_name(std::string(name));
  response.set_version(std::string(version));
  for (std::string_view extension : http::server_extensions()) response.add_extensions(std::string(extension));
  return {};
}

Status describe_model(repository::ModelRepository& repository, const inference::ModelMetadataRequest& request,
                      inference::ModelMetadataResponse& response) {
  FW_ASSIGN_OR_RETURN(const int64_t version, parse_model_version(request.version()));
  FW_ASSIGN_OR_RETURN(const ServedModelPtr model, repository.find(request.name(), version));
  const config::ModelConfig& config = model->config();
  response.set_name(config.name);
  const std::vector<int64_t> versions =
      version < 0 ? repository.table().ready_versions(config.name) : std::vector<int64_t>{version};
  for (int64_t each : versions) response.add_versions(std::to_string(each));
  response.set_platform(config.platform.empty() ? config.backend : config.platform);
  const bool batched = config.max_batch_size > 0;
  add_tensors(config.inputs, batched, [&] { return response.add_inputs(); });
  add_tensors(config.outputs, batched, [&] { return response.add_outputs(); });
  return {};
}

Status tell_model_ready(repository::ModelRepository& repository, const inference::ModelReadyRequest& request,
                        inference::ModelReadyResponse& response) {
  FW_ASSIGN_OR_RETURN(const int64_t version, parse_model_version(request.version()));
  response.set_ready(repository.find(request.name(), version).is_ok());
  return {};
}

Status give_config(repository::ModelRepository& repository, const inference::ModelConfigRequest& request,
                   inference::ModelConfigResponse& response) {
  FW_ASSIGN_OR_RETURN(const int64_t version, parse_model_version(request.version()));
  FW_ASSIGN_OR_RETURN(const ServedModelPtr model, repository.find(request.name(), version));
  *response.mutable_config() = *model->config().message;
  return {};
}

Status give_statistics(repository::ModelRepository& repository, const inference::ModelStatisticsRequest& request,
                       inference::ModelStatisticsResponse& response) {
  FW_ASSIGN_OR_RETURN(const int64_t version, parse_model_version(request.version()));
  bool name_known = request.name().empty();
  for (const ServedModelPtr& model : repository.table().ready_models()) {
    if (!request.name().empty() && model->name() != request.name()) continue;
    name_known = true;
    if (!request.name().empty() && version >= 0 && model->version() != version) continue;
    fill_statistics(*model, *response.add_model_stats());
  }
  if (!name_known) {
    return invalid_argument(fmt::format("requested model '{}' is not available", request.name()));
  }
  if (!request.name().empty() && response.model_stats_size() == 0) {
    return invalid_argument(fmt::format("requested model version is not available for model '{}'", request.name()));
  }
  return {};
}

Status give_index(repository::ModelRepository& repository, const inference::RepositoryIndexRequest& request,
                  inference::RepositoryIndexResponse& response) {
  if (!request.repository_name().empty()) return no_repository_name();
  for (const repository::IndexRow& row : repository.index(request.ready())) {
    inference::RepositoryIndexResponse::ModelIndex& out = *response.add_models();
    out.set_name(row.name);
    if (row.version >= 0) out.set_version(std::to_string(row.version));
    if (row.state != repository::ModelState::kUnknown) out.set_state(std::string(model_state_name(row.state)));
    out.set_reason(row.reason);
  }
  return {};
}

std::unique_ptr<CallHandler> open_load(Call& call, repository::ModelRepository& repository) {
  return std::make_unique<LoadHandler>(call, repository);
}

std::unique_ptr<CallHandler> open_unload(Call& call, repository::ModelRepository& repository) {
  return std::make_unique<UnloadHandler>(call, repository);
}

}  // namespace flywheel::grpc
