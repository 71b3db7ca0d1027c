// SPDX-License-Identifier: Apache-2.0
// The small JSON bodies of the repository's routes. An empty body means all defaults.
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>

#include "flywheel/status.h"
#include "server/protocol/http/body.h"

namespace flywheel::http {

// {"ready": bool}: only models that are ready.
Result<bool> read_index_body(const Body& body);
// {"parameters": {"config": "<json>"}}: a configuration instead of config.pbtxt. Refuses files sent along.
Result<std::optional<std::string>> read_load_body(const Body& body);
// {"parameters": {"unload_dependents": bool}}: only checked, as no model depends on another.
Status check_unload_body(const Body& body);

}  // namespace flywheel::http
