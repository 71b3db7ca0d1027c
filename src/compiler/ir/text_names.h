// SPDX-License-Identifier: Apache-2.0
// How names and strings are written in the text form: bare where they have only [A-Za-z0-9_./-], quoted with escapes
// otherwise.
#pragma once

#include <string>
#include <string_view>

namespace flywheel::ir {

bool is_plain_text_name(std::string_view name);
std::string quoted_text(std::string_view text);  // escapes: \" \\ \n \xHH

}  // namespace flywheel::ir
