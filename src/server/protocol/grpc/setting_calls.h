// SPDX-License-Identifier: Apache-2.0
// The methods about registered memory, tracing and the log, from message to message; InferenceService puts them behind
// their paths. Thread safety: any thread.
#pragma once

#include "flywheel/status.h"
#include "server/protocol/grpc/inference_service.pb.h"
#include "server/repository/model_repository.h"
#include "server/settings/tracer.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::grpc {

Status no_shared_memory();
// Null: the server was built or started without.
Status give_regions(const shared_memory::RegionRegistry* regions,
                    const inference::SystemSharedMemoryStatusRequest& request,
                    inference::SystemSharedMemoryStatusResponse& response);
Status change_trace_setting(repository::ModelRepository& repository, settings::Tracer* tracer,
                            const inference::TraceSettingRequest& request, inference::TraceSettingResponse& response);
Status change_log_settings(const inference::LogSettingsRequest& request, inference::LogSettingsResponse& response);

}  // namespace flywheel::grpc
