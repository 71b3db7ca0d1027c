// SPDX-License-Identifier: Apache-2.0
// Strings as JSON writes them: for reports and records, and for all that the server answers. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace flywheel {

// With quotes. Bytes that are not UTF-8 become U+FFFD, so that the document stays valid.
void append_json_string(std::string& out, std::string_view text);
std::string json_quote(std::string_view text);
bool is_valid_utf8(std::string_view text);

}  // namespace flywheel
