// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <string>

namespace flywheel {
namespace {
std::atomic<LogLevel> g_level{LogLevel::kWarning};
constexpr const char* kNames[] = {"verbose", "info", "warning", "error"};
}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
bool log_enabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  std::string line =
      fmt::format("{}.{:03d}Z {} {}\n", stamp, now.tv_nsec / 1000000, kNames[static_cast<int>(level)], text);
  // One write call keeps lines whole when several threads log at once; a failed write has nowhere to be reported.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace flywheel
