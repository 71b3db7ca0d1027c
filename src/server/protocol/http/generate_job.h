// SPDX-License-Identifier: Apache-2.0
// A request of `generate`, whose one response becomes the answer, or of `generate_stream`, whose every response becomes
// a server-sent event as soon as the model gives it. Owned by the exchange.
#pragma once

#include "server/protocol/http/exchange.h"
#include "server/repository/served_model.h"
#include "server/schedule/request.h"
#include "server/settings/tracer.h"

namespace flywheel::http {

// Leaves a job with the exchange and hands the request to the model.
void start_generate(const ExchangePtr& exchange, repository::ServedModelPtr model, schedule::RequestPtr request,
                    bool streaming, settings::TracePtr trace);

}  // namespace flywheel::http
