// SPDX-License-Identifier: Apache-2.0
// The process's log: one line an event to standard error, with time and level. Never called from the executor's loop.
// Any thread.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace flywheel {

enum class LogLevel : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

void set_log_level(LogLevel level);  // default kWarning; the server sets kInfo
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace flywheel
