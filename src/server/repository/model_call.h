// SPDX-License-Identifier: Apache-2.0
// A request of one model's to another one, by name: what models that call models are given. Thread safety: any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/repository/model_table.h"
#include "server/schedule/request.h"

namespace flywheel::repository {

// Whatever happens, on_response gets a final response, from this thread or one of the model's.
void call_model(const ModelTable& table, std::string_view name, int64_t version, schedule::RequestPtr request);

}  // namespace flywheel::repository
