// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <string>
#include <system_error>

namespace flywheel {
namespace {

constexpr unsigned kLevels = static_cast<unsigned>(LogLevel::kOff);
constexpr unsigned bit(LogLevel level) { return 1u << static_cast<unsigned>(level); }
constexpr unsigned from_level(LogLevel level) { return ((1u << kLevels) - 1) & ~(bit(level) - 1); }

std::atomic<unsigned> g_enabled{from_level(LogLevel::kWarning)};
std::atomic<LogFormat> g_format{LogFormat::kDefault};
std::atomic<int> g_fd{STDERR_FILENO};
constexpr const char* kNames[] = {"verbose", "info", "warning", "error"};
constexpr char kLetters[] = {'V', 'I', 'W', 'E'};

}  // namespace

void set_log_level(LogLevel level) { g_enabled.store(from_level(level), std::memory_order_relaxed); }
void set_log_enabled(LogLevel level, bool enabled) {
  if (enabled) {
    g_enabled.fetch_or(bit(level), std::memory_order_relaxed);
  } else {
    g_enabled.fetch_and(~bit(level), std::memory_order_relaxed);
  }
}
bool log_enabled(LogLevel level) { return (g_enabled.load(std::memory_order_relaxed) & bit(level)) != 0; }
void set_log_format(LogFormat format) { g_format.store(format, std::memory_order_relaxed); }
LogFormat log_format() { return g_format.load(std::memory_order_relaxed); }

Status set_log_file(const std::string& path) {
  int fd = STDERR_FILENO;
  if (!path.empty()) {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
      return invalid_argument("cannot write the log to '" + path + "': " + std::generic_category().message(errno));
    }
  }
  const int former = g_fd.exchange(fd, std::memory_order_acq_rel);
  // Another thread may be about to write to it: its number stays taken, and what it stands for changes.
  if (former != STDERR_FILENO && former != fd) ::dup3(fd, former, O_CLOEXEC);
  return Status::ok();
}

void log_line(LogLevel level, std::string_view text) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[32];
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  const size_t number = static_cast<size_t>(level);
  std::string line = log_format() == LogFormat::kDefault
                         ? fmt::format("{}.{:03d}Z {} {}\n", stamp, now.tv_nsec / 1000000, kNames[number], text)
                         : fmt::format("{}Z {} {} {}\n", stamp, kLetters[number], ::getpid(), text);
  // One write call keeps lines whole when several threads log at once; a failed write has nowhere to be reported.
  [[maybe_unused]] ssize_t written = ::write(g_fd.load(std::memory_order_acquire), line.data(), line.size());
}

}  // namespace flywheel
