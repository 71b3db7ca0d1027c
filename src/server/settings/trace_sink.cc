// SPDX-License-Identifier: Apache-2.0
#include "server/settings/trace_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/log.h"

namespace flywheel::settings {
namespace {

constexpr size_t kMaxPendingBytes = 64 << 20;
constexpr size_t kMaxFilesRemembered = 4096;

}  // namespace

TraceSink::~TraceSink() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TraceSink::append(const std::string& path, std::string records) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  if (records.size() > kMaxPendingBytes - pending_bytes_) {
    if (dropped_++ == 0) log(LogLevel::kWarning, "traces are lost: they come faster than '{}' can be written", path);
    return;
  }
  pending_bytes_ += records.size();
  std::string& text = pending_[path];
  if (!text.empty()) text += ',';
  text += records;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void TraceSink::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.empty() && !writing_; });
}

void TraceSink::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    std::map<std::string, std::string> taken = std::move(pending_);
    pending_.clear();
    pending_bytes_ = 0;
    writing_ = true;
    lock.unlock();
    for (const auto& [path, records] : taken) write(path, records);
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

void TraceSink::write(const std::string& path, const std::string& records) {
  const auto known = written_bytes_.find(path);
  const uint64_t before = known == written_bytes_.end() ? 0 : known->second;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (before == 0 ? O_TRUNC : 0), 0644);
  if (fd < 0) {
    log(LogLevel::kError, "cannot write traces to '{}': {}", path, std::generic_category().message(errno));
    return;
  }
  // The last byte is the array's end, which moves.
  const std::string text = (before == 0 ? "[" : ",") + records + "]";
  const uint64_t at = before == 0 ? 0 : before - 1;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(at + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  if (done == text.size()) {
    if (written_bytes_.size() >= kMaxFilesRemembered) written_bytes_.clear();
    written_bytes_[path] = at + text.size();
  } else {
    log(LogLevel::kError, "cannot write traces to '{}': {}", path, std::generic_category().message(errno));
    if (before != 0 && ::pwrite(fd, "]", 1, static_cast<off_t>(at)) == 1 &&
        ::ftruncate(fd, static_cast<off_t>(before)) != 0) {
      log(LogLevel::kError, "'{}' ends within a record", path);
    }
  }
  ::close(fd);
}

}  // namespace flywheel::settings
