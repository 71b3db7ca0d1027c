// SPDX-License-Identifier: Apache-2.0
// What the scheduler's tests share: executors that wait at a gate, and an inbox for answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/schedule/scheduler.h"
#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {

// Of a test that waits for what must happen.
constexpr std::chrono::seconds kPatience{60};

// What the executors of a test share: which batches came, and a gate that they wait at.
class Device {
 public:
  explicit Device(bool open = true) : open_(open) {}

  Status execute(Batch& batch) {
    std::unique_lock lock(mutex_);
    std::vector<std::string> ids;
    for (const BatchItem& item : batch.items) ids.push_back(item.request->id);
    batches_.push_back(ids);
    ++running_;
    most_running_ = std::max(most_running_, running_);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || passes_ > 0; });
    if (!open_) --passes_;
    --running_;
    changed_.notify_all();
    return Status::ok();
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void let_one_pass() {
    std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  void wait_for_batches(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return batches_.size() >= count; }));
  }
  std::vector<std::vector<std::string>> batches() {
    std::lock_guard lock(mutex_);
    return batches_;
  }
  int most_running() {
    std::lock_guard lock(mutex_);
    return most_running_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_;
  int passes_ = 0;
  int running_ = 0;
  int most_running_ = 0;
  std::vector<std::vector<std::string>> batches_;
};

using Behaviour = std::function<Status(Batch&)>;

class FakeExecutor : public BatchExecutor {
 public:
  explicit FakeExecutor(Behaviour behaviour) : behaviour_(std::move(behaviour)) {}
  Status execute(Batch& batch) override { return behaviour_(batch); }

 private:
  Behaviour behaviour_;
};

// Collects answers.
class Inbox {
 public:
  RequestPtr request(std::string id, int64_t batch_size = 1) {
    auto made = std::make_shared<InferRequest>();
    made->id = std::move(id);
    made->batch_size = batch_size;
    made->timeline.received_ns = monotonic_now_ns();
    made->on_response = [this](InferRequest& request, InferResponse response) {
      std::lock_guard lock(mutex_);
      order_.push_back(request.id);
      answers_[request.id].push_back(std::move(response));
      timelines_[request.id] = request.timeline;
      changed_.notify_all();
    };
    return made;
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return order_.size() >= count; }));
  }
  // Waits for it.
  InferResponse answer(const std::string& id) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return answers_.contains(id); }))
      return {.status = internal_error("no answer to " + id)};
    return answers_[id].front();
  }
  Timeline timeline(const std::string& id) {
    answer(id);
    std::lock_guard lock(mutex_);
    return timelines_[id];
  }
  std::vector<std::string> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> order_;
  std::map<std::string, std::vector<InferResponse>> answers_;
  std::map<std::string, Timeline> timelines_;
};

inline std::unique_ptr<Scheduler> make_scheduler(const config::ModelConfig& config, const Behaviour& behaviour,
                                                 int instances = 1, const SchedulerOptions& options = {}) {
  std::vector<std::unique_ptr<BatchExecutor>> executors;
  for (int i = 0; i < instances; ++i) executors.push_back(std::make_unique<FakeExecutor>(behaviour));
  auto scheduler = Scheduler::create(config, std::move(executors), options);
  EXPECT_TRUE(scheduler.is_ok()) << scheduler.status().message();
  return std::move(*scheduler);
}

inline Behaviour on(Device& device) {
  return [&device](Batch& batch) { return device.execute(batch); };
}

}  // namespace flywheel::schedule
