// SPDX-License-Identifier: Apache-2.0
// The OpenAPI 3 document of the inference protocol, written from the table of routes. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace flywheel::http {

std::string openapi_json(std::string_view server_version);

}  // namespace flywheel::http
