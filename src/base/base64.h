// SPDX-License-Identifier: Apache-2.0
// RFC 4648's base64, as JSON carries bytes. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace flywheel {

// nullopt for a character that is not of the alphabet, also white space, and for a length that no bytes give. The
// padding may be left out.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace flywheel
