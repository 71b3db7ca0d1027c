// SPDX-License-Identifier: Apache-2.0
// Python models for tests, written into a temporary folder and opened as the model loader does it. They need a python3
// that has numpy: the project's .venv, or the PATH's.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_test_data.h"
#include "server/backend/python/python_backend.h"
#include "server/config/parse_config.h"
#include "server/schedule/scheduler.h"

namespace flywheel::python {

// The responses to a request.
class Answers {
 public:
  void add(schedule::InferResponse response) {
    std::lock_guard lock(mutex_);
    responses_.push_back(std::move(response));
    changed_.notify_all();
  }
  // All of them, once the last has come.
  std::vector<schedule::InferResponse> wait() {
    std::unique_lock lock(mutex_);
    const bool done = changed_.wait_for(lock, std::chrono::seconds(60),
                                        [&] { return !responses_.empty() && responses_.back().final; });
    EXPECT_TRUE(done);
    return std::move(responses_);
  }
  // As soon as there are `count`.
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return responses_.size() >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<schedule::InferResponse> responses_;
};

inline bool has_numpy() {
  static const bool found = [] {
    const std::string venv = std::string(FLYWHEEL_SOURCE_DIR) + "/.venv/bin";
    if (std::filesystem::exists(venv + "/python3")) ::setenv("PATH", (venv + ":" + std::getenv("PATH")).c_str(), 1);
    return std::system("python3 -c 'import numpy' > /dev/null 2>&1") == 0;
  }();
  return found;
}

class PythonTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_numpy()) GTEST_SKIP() << "no python3 with numpy: neither in .venv nor in the PATH";
    std::filesystem::create_directories(folder_ + "/1");
  }
  void TearDown() override {
    runner_.reset();
    model_.reset();
  }
  Status load(const std::string& config_text, const std::string& code) {
    runner_.reset();
    std::ofstream(folder_ + "/1/model.py")
        << "import json\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
        << code;
    FW_ASSIGN_OR_RETURN(const config::ModelConfig parsed, config::parse_config(config_text, "config.pbtxt", "m"));
    FW_ASSIGN_OR_RETURN(
        model_, PythonBackend(options_).open(
                    {.parsed = parsed, .model_folder = folder_, .version = 1, .auto_complete = true, .keep_going = [] {
                       return true;
                     }}));
    FW_ASSIGN_OR_RETURN(config_, config::complete_config(*model_->written(), model_->description()));
    FW_RETURN_IF_ERROR(model_->configure(config_));
    std::vector<std::unique_ptr<schedule::BatchExecutor>> executors;
    for (int i = 0; i < config_.instance_count(); ++i) {
      FW_ASSIGN_OR_RETURN(std::unique_ptr<schedule::BatchExecutor> executor, model_->create_instance(i));
      executors.push_back(std::move(executor));
    }
    schedule::SchedulerOptions scheduling;
    scheduling.execution_timeout_ns = model_->execution_timeout_ns();
    FW_ASSIGN_OR_RETURN(runner_, schedule::Scheduler::create(config_, std::move(executors), scheduling));
    return {};
  }
  template <class T>
  static schedule::InputView view(std::string name, config::DataType type, std::vector<int64_t> shape,
                                  const std::vector<T>& data) {
    return {std::move(name), type, std::move(shape), std::as_bytes(std::span(data))};
  }
  static schedule::RequestPtr make_request(std::vector<schedule::InputView> inputs) {
    auto request = std::make_shared<schedule::InferRequest>();
    request->inputs = std::move(inputs);
    request->timeline.received_ns = schedule::monotonic_now_ns();
    return request;
  }
  std::shared_ptr<Answers> start(const schedule::RequestPtr& request) {
    auto answers = std::make_shared<Answers>();
    request->on_response = [answers](schedule::InferRequest&, schedule::InferResponse response) {
      answers->add(std::move(response));
    };
    runner_->enqueue(request);
    return answers;
  }
  schedule::InferResponse infer(const schedule::RequestPtr& request) {
    std::vector<schedule::InferResponse> responses = start(request)->wait();
    return responses.empty() ? schedule::InferResponse{} : std::move(responses.back());
  }
  template <class T>
  static std::vector<T> values(const schedule::OutputTensor& output) {
    std::vector<T> copied(output.bytes.size() / sizeof(T));
    if (!copied.empty()) std::memcpy(copied.data(), output.bytes.data(), output.bytes.size());
    return copied;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  PythonOptions options_;
  config::ModelConfig config_;
  std::shared_ptr<backend::OpenModel> model_;
  std::unique_ptr<schedule::RequestRunner> runner_;
};

}  // namespace flywheel::python
