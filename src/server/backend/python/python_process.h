// SPDX-License-Identifier: Apache-2.0
// One instance's Python process: started, initialised, given batches, started again when it ends. A thread of its own
// watches it: takes its messages, and what the process did not answer when it ends is answered as failed. Owned by the
// instance. Threads: execute() from one at a time, the rest from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "flywheel/status.h"
#include "server/backend/backend.h"
#include "server/backend/python/channel.h"
#include "server/backend/python/child_process.h"
#include "server/backend/python/model_calls.h"
#include "server/backend/python/tensor_exchange.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"

namespace flywheel::python {

struct ProcessOptions {
  std::string interpreter;
  std::string environment;    // "": the server's
  std::string instance_name;  // in messages and for the model
  std::string start_message;  // JSON of the first message
  Kind start_kind = Kind::kInitialize;
  config::ModelConfig config;
  backend::ModelCaller caller;
  std::function<bool(const std::string& model, int64_t version)> is_ready;
  int64_t finalize_timeout_ns = 10'000'000'000;
};

class PythonProcess : public schedule::BatchExecutor {
 public:
  explicit PythonProcess(ProcessOptions options);
  ~PythonProcess() override;  // finalises, and kills what has not ended then
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Until the process has taken the first message, whose answer is returned, or has failed to.
  Result<std::string> wait_until_started(const std::function<bool()>& keep_going);
  Status execute(schedule::Batch& batch) override;
  // Kills the process if it executes a batch; the next is started at once.
  void give_up() override;
  void drain(int64_t until_ns) override;
  pid_t pid() const;  // 0: there is none now

 private:
  enum class State : uint8_t { kStarting, kReady, kWaiting, kStopped };
  struct Request {
    schedule::RequestPtr shared;  // null: nobody hears its responses
    std::vector<std::string> wanted;
    bool executing = true;
  };
  // What the process owes an answer to; one at a time.
  struct Pending {
    uint64_t id = 0;
    std::optional<Incoming> answer;
  };

  void run();
  Status run_once();
  Status serve(ChildProcess& child, const std::shared_ptr<Channel>& channel, ModelCalls& calls);
  Status wait_for_events(ChildProcess& child, const Channel& channel, int64_t until_ns) const;
  Status take_start(const Incoming& message, const std::shared_ptr<Channel>& channel);
  void handle(Incoming message, Channel& channel, ModelCalls& calls);
  void handle_response(const Incoming& message);
  void handle_question(const Incoming& message, Channel& channel);
  void handle_log(const Incoming& message) const;
  Status died_locked() const;
  void take_answers(schedule::Batch& batch, const std::vector<uint64_t>& tokens, const Incoming& answer,
                    uint64_t generation);
  Outgoing make_execute(const schedule::Batch& batch, const std::vector<uint64_t>& tokens) const;
  Status failure(const Status& why) const;

  const ProcessOptions options_;
  std::string all_outputs_;  // JSON

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kStarting;
  bool was_ready_ = false;  // the watcher's: the process that has ended
  bool stopping_ = false;
  bool give_up_ = false;
  Status last_failure_;
  std::string start_answer_;
  uint64_t generation_ = 0;  // how many processes have ended
  Status death_;             // why the last one did
  uint64_t start_id_ = 0;
  int64_t ready_ns_ = 0;
  pid_t pid_ = 0;
  std::shared_ptr<Channel> channel_;  // when ready
  Pending pending_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Request> requests_;  // by token: not finally answered
  const int control_fd_;                  // readable when the watcher should look at stopping_ and give_up_
  std::thread watcher_;
};

}  // namespace flywheel::python
