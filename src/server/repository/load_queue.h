// SPDX-License-Identifier: Apache-2.0
// A few threads that load and unload models: those of one model in the order asked for, different models side by side.
// Owned by the repository. Any thread may post.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace flywheel::repository {

class LoadQueue {
 public:
  explicit LoadQueue(int threads);
  ~LoadQueue();  // finishes what was posted
  LoadQueue(const LoadQueue&) = delete;
  LoadQueue& operator=(const LoadQueue&) = delete;

  void post(std::string model, std::function<void()> task);
  // Finishes what was posted and ends the threads; what is posted afterwards runs at once on the caller's thread.
  void finish();

 private:
  struct Task {
    std::string model;
    std::function<void()> run;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Task> tasks_;
  std::set<std::string> busy_;  // models that a thread works on
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace flywheel::repository
