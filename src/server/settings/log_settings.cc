// SPDX-License-Identifier: Apache-2.0
#include "server/settings/log_settings.h"

#include <limits>
#include <mutex>

#include "base/log.h"

namespace flywheel::settings {
namespace {

constexpr const char* kDefaultFormat = "default";
constexpr const char* kIsoFormat = "ISO8601";

// What the log itself does not remember.
std::mutex g_mutex;
std::string g_file;
uint32_t g_verbose_level = 0;

void apply(const LogSettings& settings) {
  set_log_enabled(LogLevel::kInfo, settings.log_info);
  set_log_enabled(LogLevel::kWarning, settings.log_warning);
  set_log_enabled(LogLevel::kError, settings.log_error);
  set_log_enabled(LogLevel::kVerbose, settings.log_verbose_level > 0);
  set_log_format(settings.log_format == kIsoFormat ? LogFormat::kIso8601 : LogFormat::kDefault);
  g_verbose_level = settings.log_verbose_level;
}

LogSettings current() {
  LogSettings settings;
  settings.log_file = g_file;
  settings.log_info = log_enabled(LogLevel::kInfo);
  settings.log_warning = log_enabled(LogLevel::kWarning);
  settings.log_error = log_enabled(LogLevel::kError);
  if (log_enabled(LogLevel::kVerbose)) settings.log_verbose_level = g_verbose_level > 0 ? g_verbose_level : 1;
  settings.log_format = log_format() == LogFormat::kIso8601 ? kIsoFormat : kDefaultFormat;
  return settings;
}

Status check_format(const std::string& format) {
  if (format == kDefaultFormat || format == kIsoFormat) return {};
  return unavailable("invalid argument for --log_format, got: " + format);
}

}  // namespace

LogSettings current_log_settings() {
  std::lock_guard lock(g_mutex);
  return current();
}

Status update_log_settings(const LogChanges& changes) {
  if (changes.log_file) return unsupported("log file location can not be updated through network protocol");
  if (changes.log_format) FW_RETURN_IF_ERROR(check_format(*changes.log_format));
  if (changes.log_verbose_level.value_or(0) > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("log_verbose_level is " + std::to_string(*changes.log_verbose_level) +
                            ", but may be 2147483647 at most");
  }
  std::lock_guard lock(g_mutex);
  LogSettings settings = current();
  settings.log_info = changes.log_info.value_or(settings.log_info);
  settings.log_warning = changes.log_warning.value_or(settings.log_warning);
  settings.log_error = changes.log_error.value_or(settings.log_error);
  settings.log_verbose_level = static_cast<uint32_t>(changes.log_verbose_level.value_or(settings.log_verbose_level));
  settings.log_format = changes.log_format.value_or(settings.log_format);
  apply(settings);
  return {};
}

Status set_log_settings(const LogSettings& settings) {
  FW_RETURN_IF_ERROR(check_format(settings.log_format));
  std::lock_guard lock(g_mutex);
  FW_RETURN_IF_ERROR(set_log_file(settings.log_file));
  g_file = settings.log_file;
  apply(settings);
  return {};
}

}  // namespace flywheel::settings
