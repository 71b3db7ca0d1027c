// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1: whether the server is ready, once or as it changes. Like Triton it answers for the whole server,
// whatever service the client names. InferenceService puts the methods behind their paths.
#pragma once

#include <memory>

#include "server/protocol/grpc/call.h"
#include "server/repository/model_repository.h"

namespace flywheel::grpc {

std::unique_ptr<CallHandler> open_health_check(Call& call, repository::ModelRepository& repository);
std::unique_ptr<CallHandler> open_health_watch(Call& call, repository::ModelRepository& repository);

}  // namespace flywheel::grpc
