// SPDX-License-Identifier: Apache-2.0
// The small JSON bodies of all routes that change something but infer nothing. An empty body means all defaults.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flywheel/status.h"
#include "server/protocol/http/body.h"
#include "server/repository/model_repository.h"
#include "server/settings/log_settings.h"
#include "server/settings/trace_setting.h"

namespace flywheel::http {

// {"ready": bool}: only models that are ready.
Result<bool> read_index_body(const Body& body);
// {"parameters": {"config": "<json>", "file:1/model.onnx": "<base64>"}}
Result<repository::LoadOverrides> read_load_body(const Body& body);
// {"parameters": {"unload_dependents": bool}}: whether the models of an ensemble's steps go with it.
Result<bool> read_unload_body(const Body& body);

// {"key": "/name", "offset": 0, "byte_size": 64}
struct RegisterBody {
  std::string key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};
Result<RegisterBody> read_register_body(const Body& body);
// {"trace_level": ["TIMESTAMPS"], "trace_rate": "100", ...}; null: as the setting behind it has it.
Result<settings::TraceChanges> read_trace_body(const Body& body);
// {"log_info": true, "log_verbose_level": 1, ...}; null: as it is.
Result<settings::LogChanges> read_log_body(const Body& body);

}  // namespace flywheel::http
