// SPDX-License-Identifier: Apache-2.0
// The methods about models and the server, from message to message; InferenceService puts them behind their paths.
// Thread safety: any thread.
#pragma once

#include <memory>
#include <string_view>

#include "flywheel/status.h"
#include "server/protocol/grpc/call.h"
#include "server/protocol/grpc/inference_service.pb.h"
#include "server/repository/model_repository.h"

namespace flywheel::grpc {

Status describe_server(std::string_view name, std::string_view version, inference::ServerMetadataResponse& response);
Status describe_model(repository::ModelRepository& repository, const inference::ModelMetadataRequest& request,
                      inference::ModelMetadataResponse& response);
Status tell_model_ready(repository::ModelRepository& repository, const inference::ModelReadyRequest& request,
                        inference::ModelReadyResponse& response);
Status give_config(repository::ModelRepository& repository, const inference::ModelConfigRequest& request,
                   inference::ModelConfigResponse& response);
Status give_statistics(repository::ModelRepository& repository, const inference::ModelStatisticsRequest& request,
                       inference::ModelStatisticsResponse& response);
Status give_index(repository::ModelRepository& repository, const inference::RepositoryIndexRequest& request,
                  inference::RepositoryIndexResponse& response);
// These take as long as loading does.
std::unique_ptr<CallHandler> open_load(Call& call, repository::ModelRepository& repository);
std::unique_ptr<CallHandler> open_unload(Call& call, repository::ModelRepository& repository);

}  // namespace flywheel::grpc
