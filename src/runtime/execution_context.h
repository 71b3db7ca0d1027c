// SPDX-License-Identifier: Apache-2.0
// The runtime's ExecutionContext: one arena, one thread team, a bounded cache of bound shapes. One thread at a time;
// while a run that was enqueued is in flight, its own thread has the context and everything else is refused.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "runtime/bound_shape.h"
#include "runtime/engine_impl.h"

namespace flywheel::runtime {

class ContextImpl final : public ExecutionContext {
 public:
  static Result<std::unique_ptr<ExecutionContext>> create(std::shared_ptr<const EngineImpl> engine,
                                                          const ContextOptions& options);
  ~ContextImpl() override;

  const Engine& engine() const override { return *engine_; }
  int threads() const override { return team_->size(); }
  Status set_shape(int input, std::span<const int64_t> dims) override;
  Status bind() override;
  std::span<const int64_t> input_dims(int input) const override { return wanted_[static_cast<size_t>(input)]; }
  std::span<const int64_t> output_dims(int output) const override;
  uint64_t output_bytes(int output) const override;
  Status run(std::span<const void* const> inputs, std::span<void* const> outputs) override;
  Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::function<void(Status)> done) override;
  void wait() override;
  void set_profiler(std::function<void(int, double)> profiler) override { profiler_ = std::move(profiler); }
  void set_observer(Observer observer) override { observer_ = std::move(observer); }

 private:
  explicit ContextImpl(std::shared_ptr<const EngineImpl> engine) : engine_(std::move(engine)) {}
  Status check_idle() const;
  Status check_io(std::span<const void* const> inputs, std::span<void* const> outputs) const;
  Status run_bound(std::span<const void* const> inputs, std::span<void* const> outputs);
  Status report_faults();
  template <class Body>
  void run_on_workers(const Body& body) {
    if (current_->workers() > 1) return team_->run(body);
    Worker alone = Worker::alone();
    body(alone);
  }
  void run_steps();
  void run_steps_timed();
  void run_steps_observed();
  void runner_loop();

  std::shared_ptr<const EngineImpl> engine_;
  std::unique_ptr<ThreadTeam> team_;
  AlignedBuffer arena_, workspace_;
  std::vector<Dims> wanted_;
  // Most recently used first. The front is current when current_ is set.
  std::list<std::unique_ptr<BoundShape>> cache_;
  BoundShape* current_ = nullptr;
  std::function<void(int, double)> profiler_;
  std::vector<double> step_ms_;  // written by rank 0 during a timed run, handed out after it
  Observer observer_;

  // enqueue(): a thread that is started by the first call.
  std::mutex runner_mutex_;
  std::condition_variable runner_wake_, runner_idle_;
  std::thread runner_;
  // busy: from enqueue() to the end of its run; written under the mutex, read without it by run() and the like, which
  // only refuse. calling: while done() runs.
  std::atomic<bool> runner_busy_ = false;
  bool runner_calling_ = false, runner_stop_ = false;
  std::vector<const void*> queued_inputs_;
  std::vector<void*> queued_outputs_;
  std::function<void(Status)> queued_done_;
};

}  // namespace flywheel::runtime
