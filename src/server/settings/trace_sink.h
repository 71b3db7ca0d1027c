// SPDX-License-Identifier: Apache-2.0
// Where records of traces become files: a thread that is started by the first one appends them, so that nobody who
// serves a request waits for a disk. Shared by the tracer and the traces in hand. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace flywheel::settings {

class TraceSink {
 public:
  TraceSink() = default;
  ~TraceSink();  // writes what it has
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;

  // `records`: JSON objects with commas between. Records of one file keep their order. Drops them when the disk does
  // not keep up, and says so in the log. What an earlier run left at the path is replaced.
  void append(const std::string& path, std::string records);
  // Until what was appended before is written, or could not be.
  void flush();

 private:
  void run();
  void write(const std::string& path, const std::string& records);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> pending_;  // by path
  size_t pending_bytes_ = 0;
  uint64_t dropped_ = 0;
  bool writing_ = false;
  bool stopping_ = false;
  std::map<std::string, uint64_t> written_bytes_;  // the thread's alone: of files that it began
  std::thread thread_;
};

}  // namespace flywheel::settings
