// SPDX-License-Identifier: Apache-2.0
// The process's log: one line an event to standard error or a file, with time and level. Never called from the
// executor's loop. Any thread.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel {

enum class LogLevel : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

enum class LogFormat : int {
  kDefault,  // 2026-01-31T13:14:15.123Z info text
  kIso8601,  // 2026-01-31T13:14:15Z I 4711 text
};

void set_log_level(LogLevel level);  // that and what is worse; default kWarning; the server sets kInfo
void set_log_enabled(LogLevel level, bool enabled);
bool log_enabled(LogLevel level);
void set_log_format(LogFormat format);
LogFormat log_format();
// Appends to the file from now on; empty: standard error. If it cannot be opened, nothing changes.
Status set_log_file(const std::string& path);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace flywheel
