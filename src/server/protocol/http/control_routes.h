// SPDX-License-Identifier: Apache-2.0
// The routes that manage the server: the repository, shared memory, trace and log settings. KServeHandler calls them
// once a request's route and right to be there are known.
// Thread safety: any thread; what they change guards itself.
#pragma once

#include "server/protocol/http/exchange.h"
#include "server/protocol/http/routes.h"
#include "server/repository/model_repository.h"
#include "server/settings/tracer.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::http {

// kIndex, kLoad, kUnload, kNamedRepository.
Response repository_route(const ExchangePtr& exchange, const RouteMatch& match, repository::ModelRepository& repository,
                          bool& answered_later);
// kSystemMemory... and kCudaMemory...
Response memory_route(const Exchange& exchange, const RouteMatch& match, shared_memory::RegionRegistry& regions);
// kTrace and kModelTrace.
Response trace_route(const Exchange& exchange, const RouteMatch& match, const repository::ModelRepository& repository,
                     settings::Tracer& tracer);
Response logging_route(const Exchange& exchange);

}  // namespace flywheel::http
