// SPDX-License-Identifier: Apache-2.0
// grpc.reflection, v1 and v1alpha, whose messages are the same: the descriptors of the server's own services, from
// protobuf's generated pool. InferenceService puts the method behind both paths.
#pragma once

#include <memory>

#include "server/protocol/grpc/call.h"

namespace flywheel::grpc {

std::unique_ptr<CallHandler> open_reflection(Call& call);

}  // namespace flywheel::grpc
