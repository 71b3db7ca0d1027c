// SPDX-License-Identifier: Apache-2.0
// Threads for what would hold up all other connections of a reactor: decompressing, and reading or writing megabytes of
// JSON. As many at a time as there are threads, which also bounds the memory that such work takes. Any thread may post.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace flywheel::http {

class SlowLane {
 public:
  explicit SlowLane(int threads);
  ~SlowLane();  // does what was posted, then ends
  SlowLane(const SlowLane&) = delete;
  SlowLane& operator=(const SlowLane&) = delete;
  void post(std::function<void()> task);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace flywheel::http
