// SPDX-License-Identifier: Apache-2.0
// The log's settings, as Triton's logging extension has them: the protocols read and change them while the server runs.
// They are the process's, as its log is. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flywheel/status.h"

namespace flywheel::settings {

struct LogSettings {
  std::string log_file;  // "": standard error
  bool log_info = true;
  bool log_warning = true;
  bool log_error = true;
  uint32_t log_verbose_level = 0;
  std::string log_format = "default";  // or "ISO8601"
};

// What is absent stays.
struct LogChanges {
  std::optional<std::string> log_file;  // clients may not: refused
  std::optional<bool> log_info, log_warning, log_error;
  std::optional<uint64_t> log_verbose_level;
  std::optional<std::string> log_format;
};

LogSettings current_log_settings();
// All of them, or none and why.
Status update_log_settings(const LogChanges& changes);
// At start, where a file may be named: everything that is logged from now on is appended to it.
Status set_log_settings(const LogSettings& settings);

}  // namespace flywheel::settings
