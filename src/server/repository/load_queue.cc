// SPDX-License-Identifier: Apache-2.0
#include "server/repository/load_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace flywheel::repository {

LoadQueue::LoadQueue(int threads) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    threads_.emplace_back([this] { work(); });
    pthread_setname_np(threads_.back().native_handle(), "fw-load");
  }
}

LoadQueue::~LoadQueue() { finish(); }

void LoadQueue::post(std::string model, std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      tasks_.push_back({std::move(model), std::move(task)});
      wake_.notify_one();
      return;
    }
  }
  task();
}

void LoadQueue::finish() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void LoadQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto next =
        std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) { return !busy_.contains(task.model); });
    if (next == tasks_.end()) {
      if (stopping_ && tasks_.empty()) return;
      wake_.wait(lock);
      continue;
    }
    Task task = std::move(*next);
    tasks_.erase(next);
    busy_.insert(task.model);
    lock.unlock();
    task.run();
    task.run = nullptr;
    lock.lock();
    busy_.erase(task.model);
    wake_.notify_all();  // another task of that model may be next, or the end
  }
}

}  // namespace flywheel::repository
