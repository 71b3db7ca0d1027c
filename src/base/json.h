// SPDX-License-Identifier: Apache-2.0
// Strings as JSON writes them. For reports and records; the server's protocol has its own writer, made for its hot
// path. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace flywheel {

// With quotes; control characters, quotes and backslashes escaped. Other bytes stay as they are: `text` should be
// UTF-8.
std::string json_quote(std::string_view text);

}  // namespace flywheel
