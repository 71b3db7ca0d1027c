// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/sequence_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "server/schedule/execution.h"
#include "server/schedule/ordered_release.h"
#include "server/schedule/sequence_former.h"

namespace flywheel::schedule {
// Shared by the scheduler and its threads, because a thread whose executor hangs outlives stop(). All state is guarded
// by mutex_; no callback is called under it, and of executors only give_up.
class SequenceScheduler::Core : public CancelListener, public std::enable_shared_from_this<SequenceScheduler::Core> {
 public:
  Core(const config::ModelConfig& config, SequenceTensors tensors,
       std::vector<std::unique_ptr<BatchExecutor>> executors, const SchedulerOptions& options)
      : statistics(std::make_shared<ModelStatistics>(executors.size())),
        name_(config.name),
        options_(options),
        tensors_(std::move(tensors)),
        executors_(std::move(executors)),
        release_(config.sequence_batching->oldest && config.sequence_batching->preserve_ordering),
        former_(config, static_cast<int>(executors_.size()), statistics),
        lanes_(executors_.size()) {
    if (options_.arbiter != nullptr)
      client_ = options_.arbiter->add_client(static_cast<int>(config.device_priority), options_.arbiter_weight,
                                             options_.arbiter_needs);
  }

  void start() {
    std::lock_guard stop_lock(stop_mutex_);
    alive_ = executors_.size();
    keeper_ = std::thread([core = shared_from_this()] { core->run_keeper(); });
    for (size_t i = 0; i < executors_.size(); ++i)
      threads_.emplace_back([core = shared_from_this(), i] { core->run_instance(i); });
  }
  void enqueue(RequestPtr request);
  void stop(int64_t grace_ns);
  void on_cancel(InferRequest& request) override {
    std::lock_guard lock(mutex_);
    if (!request.place.queued) return;
    former_.note_cancelled();
    call_keeper_locked(monotonic_now_ns());
  }
  size_t queued() const {
    std::lock_guard lock(mutex_);
    return former_.size();
  }

  const std::shared_ptr<ModelStatistics> statistics;

 private:
  struct Job {
    std::vector<SequenceRow> rows;
    std::vector<RequestPtr> requests;  // of the rows that have one
    DispatchReason reason = DispatchReason::kNoDelay;
    uint64_t ticket = 0;
    int64_t hangs_at_ns = kNever;
    bool given_up = false;
  };
  struct Lane {
    std::condition_variable wake;
    bool called = false;
    std::shared_ptr<Job> job;
  };

  void run_instance(size_t index);
  void run_keeper();
  void execute(size_t index, const std::shared_ptr<Job>& job);
  void give_up(size_t index, std::unique_lock<std::mutex>& lock, const Status& status);
  void refuse(SequenceStep step, std::unique_lock<std::mutex>& lock);
  static void call_lane_locked(Lane& lane) {
    if (lane.job != nullptr || lane.called) return;
    lane.called = true;
    lane.wake.notify_one();
  }
  void call_lanes_locked() {
    for (Lane& lane : lanes_) call_lane_locked(lane);
  }
  void call_keeper_locked(int64_t by_ns) {
    if (by_ns >= keeper_wakes_ns_ || keeper_called_) return;
    keeper_called_ = true;
    keeper_cv_.notify_one();
  }

  const std::string name_;
  const SchedulerOptions options_;
  const SequenceTensors tensors_;
  const std::vector<std::unique_ptr<BatchExecutor>> executors_;
  OrderedRelease release_;
  std::shared_ptr<DeviceArbiter::Client> client_;
  std::mutex stop_mutex_;             // taken before mutex_, held throughout stop
  std::vector<std::thread> threads_;  // guarded by stop_mutex_
  std::thread keeper_;                // likewise

  mutable std::mutex mutex_;
  SequenceFormer former_;
  std::vector<Lane> lanes_;
  size_t alive_ = 0;  // instance threads that have not ended
  size_t hung_ = 0;
  bool stopping_ = false;
  bool keeper_ends_ = false;
  bool keeper_called_ = false;
  int64_t keeper_wakes_ns_ = kNever;
  std::condition_variable keeper_cv_;
  std::condition_variable ended_cv_;
};

void SequenceScheduler::Core::enqueue(RequestPtr request) {
  request->set_cancel_listener(weak_from_this());
  InferResponse refusal;
  refusal.reason = FailureReason::kOther;
  refusal.status = tensors_.check(*request);
  {
    int instance = -1;
    std::lock_guard lock(mutex_);
    const int64_t now_ns = monotonic_now_ns();
    if (!refusal.status.is_ok()) {
      statistics->record_failure(refusal.reason, request->timeline.received_ns, now_ns);
    } else if (stopping_) {
      refusal.status =
          unavailable("Server is stopping, scheduler for model has stopped accepting new inference requests");
      refusal.reason = FailureReason::kRejected;
      statistics->record_failure(refusal.reason, request->timeline.received_ns, now_ns);
    } else {
      refusal.status = former_.push(request, now_ns, instance);
    }
    if (refusal.status.is_ok()) {
      if (instance >= 0) call_lane_locked(lanes_[static_cast<size_t>(instance)]);
      call_keeper_locked(former_.removal_ns(*request, now_ns));
      if (request->is_cancelled()) {
        former_.note_cancelled();
        call_keeper_locked(now_ns);
      }
      return;
    }
  }
  request->respond(std::move(refusal));
}

void SequenceScheduler::Core::refuse(SequenceStep step, std::unique_lock<std::mutex>& lock) {
  call_lanes_locked();
  ended_cv_.notify_all();
  lock.unlock();
  for (const RequestPtr& request : step.refused) request->respond({.status = step.status, .reason = step.failure});
  step.refused.clear();
  lock.lock();
}

void SequenceScheduler::Core::run_instance(size_t index) {
  Lane& lane = lanes_[index];
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.called = false;
    const int64_t now_ns = monotonic_now_ns();
    SequenceStep step = former_.next(static_cast<int>(index), now_ns, stopping_);
    if (step.kind == SequenceStep::Kind::kWait) {
      // Sequences in the backlog may still come here.
      if (stopping_ && former_.empty()) break;
      wait_until(lane.wake, lock, step.wait_until_ns, [&] { return lane.called; });
      continue;
    }
    auto job = std::make_shared<Job>();
    job->rows = std::move(step.rows);
    job->reason = step.reason;
    job->ticket = release_.take_ticket();
    for (const SequenceRow& row : job->rows) {
      if (row.request != nullptr) job->requests.push_back(row.request);
    }
    lane.job = job;
    statistics->add_executing(1);
    lock.unlock();
    execute(index, job);
    job.reset();
    lock.lock();
    // Slots that nobody will use again go to sequences that wait.
    if (stopping_) call_keeper_locked(0);
  }
  --alive_;
  ended_cv_.notify_all();
}

void SequenceScheduler::Core::execute(size_t index, const std::shared_ptr<Job>& job) {
  DeviceArbiter::Lease lease;
  if (client_ != nullptr) lease = options_.arbiter->acquire(client_);
  {
    std::lock_guard lock(mutex_);
    if (options_.execution_timeout_ns > 0) {
      job->hangs_at_ns = deadline(monotonic_now_ns(), options_.execution_timeout_ns);
      call_keeper_locked(job->hangs_at_ns);
    }
  }
  Batch batch;
  std::vector<std::vector<std::string>> wanted(job->rows.size());  // by clients
  std::vector<RequestPtr> fillers;
  for (size_t i = 0; i < job->rows.size(); ++i) {
    SequenceRow& row = job->rows[i];
    if (row.request == nullptr) continue;
    wanted[i] = row.request->requested_outputs;
    tensors_.add(*row.request, row.state);
  }
  for (const SequenceRow& row : job->rows) {
    const InferRequest* request = row.request.get();
    if (request == nullptr) {
      fillers.push_back(tensors_.make_empty(*job->requests.front()));
      request = fillers.back().get();
    }
    batch.items.push_back({.request = request, .status = {}, .outputs = {}, .parameters = {}, .shared = row.request});
    ++batch.batch_size;
  }
  const Status status = execute_batch(*executors_[index], batch, name_);
  lease.release();
  const int64_t now_ns = monotonic_now_ns();

  Answers answers;
  std::vector<Status> statuses;
  std::vector<std::vector<OutputTensor>> states(job->rows.size());
  for (size_t i = 0; i < job->rows.size(); ++i) {
    const RequestPtr& request = job->rows[i].request;
    if (request == nullptr) continue;
    InferResponse response = take_response(batch.items[i], status);
    if (response.status.is_ok()) states[i] = tensors_.take_states(wanted[i], response.outputs);
    request->requested_outputs = std::move(wanted[i]);
    stamp(request->timeline, batch, now_ns);
    statuses.push_back(response.status);
    if (!batch.items[i].deferred || !status.is_ok()) answers.emplace_back(request, std::move(response));
  }
  {
    std::lock_guard lock(mutex_);
    former_.finish(static_cast<int>(index), job->rows, std::move(states), now_ns);
    lanes_[index].job.reset();
    call_lanes_locked();
    call_keeper_locked(former_.idle_end_ns(now_ns));
    if (job->given_up) {
      --hung_;
      return;
    }
    statistics->add_executing(-1);
  }
  statistics->record_batch(index, job->requests, statuses, job->reason, now_ns);
  release_.complete(job->ticket, std::move(answers));
}

// Answers for an executor that does not. Releases the lock meanwhile.
void SequenceScheduler::Core::give_up(size_t index, std::unique_lock<std::mutex>& lock, const Status& status) {
  const std::shared_ptr<Job> job = lanes_[index].job;
  job->given_up = true;
  job->hangs_at_ns = kNever;
  executors_[index]->give_up();
  ++hung_;
  statistics->add_executing(-1);
  const int64_t now_ns = monotonic_now_ns();
  SequenceStep step = former_.hang(static_cast<int>(index), now_ns, status);
  lock.unlock();
  Answers answers;
  for (const RequestPtr& request : job->requests) {
    statistics->record_failure(FailureReason::kBackend, request->timeline.received_ns, now_ns);
    answers.emplace_back(request, InferResponse{status, FailureReason::kBackend, {}});
  }
  release_.complete(job->ticket, std::move(answers));
  lock.lock();
  refuse(std::move(step), lock);
}

void SequenceScheduler::Core::run_keeper() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const int64_t now_ns = monotonic_now_ns();
    const auto hung = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return lane.job != nullptr && !lane.job->given_up && lane.job->hangs_at_ns <= now_ns;
    });
    if (hung != lanes_.end()) {
      give_up(
          static_cast<size_t>(hung - lanes_.begin()), lock,
          internal_error(fmt::format("model '{}' did not finish a batch within {} ms; its instance is out of service "
                                     "until it does",
                                     name_, options_.execution_timeout_ns / 1'000'000)));
      continue;
    }
    SequenceStep step = former_.removals(now_ns, stopping_);
    if (step.kind == SequenceStep::Kind::kRefuse) {
      refuse(std::move(step), lock);
      continue;
    }
    if (hung_ == lanes_.size() && !former_.empty()) {
      refuse(former_.abandon(now_ns,
                             unavailable(fmt::format("all instances of model '{}' have stopped responding", name_))),
             lock);
      continue;
    }
    call_lanes_locked();  // a sequence may have got a slot
    if (keeper_ends_) return;
    keeper_wakes_ns_ = step.wait_until_ns;
    for (const Lane& lane : lanes_) {
      if (lane.job != nullptr) keeper_wakes_ns_ = std::min(keeper_wakes_ns_, lane.job->hangs_at_ns);
    }
    keeper_called_ = false;
    wait_until(keeper_cv_, lock, keeper_wakes_ns_, [&] { return keeper_called_; });
    keeper_wakes_ns_ = 0;  // awake: it looks at everything before it waits again
  }
}

void SequenceScheduler::Core::stop(int64_t grace_ns) {
  std::lock_guard stop_lock(stop_mutex_);
  if (!keeper_.joinable()) return;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  call_lanes_locked();
  call_keeper_locked(0);
  const Status late = unavailable(fmt::format("model '{}' was stopped before it could answer", name_));
  const int64_t until_ns = deadline(monotonic_now_ns(), std::max<int64_t>(grace_ns, 0));
  wait_until(ended_cv_, lock, until_ns, [&] { return alive_ == 0; });
  if (!former_.empty()) refuse(former_.abandon(monotonic_now_ns(), late), lock);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].job != nullptr && !lanes_[i].job->given_up) give_up(i, lock, late);
  }
  if (client_ != nullptr) {
    lock.unlock();
    options_.arbiter->cancel(client_);
    lock.lock();
  }
  call_lanes_locked();
  ended_cv_.wait(lock, [&] { return alive_ <= hung_; });
  const bool all_ended = alive_ == 0;
  if (all_ended) {
    lock.unlock();
    for (const auto& executor : executors_) executor->drain(until_ns);
    lock.lock();
  }
  keeper_ends_ = true;
  call_keeper_locked(0);
  lock.unlock();
  keeper_.join();
  for (std::thread& thread : threads_) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

Result<std::unique_ptr<SequenceScheduler>> SequenceScheduler::create(
    const config::ModelConfig& config, SequenceTensors tensors, std::vector<std::unique_ptr<BatchExecutor>> executors,
    const SchedulerOptions& options) {
  if (executors.empty())
    return invalid_argument(fmt::format("model '{}' has no instance to execute its requests", config.name));
  auto core = std::make_shared<Core>(config, std::move(tensors), std::move(executors), options);
  core->start();
  return std::unique_ptr<SequenceScheduler>(new SequenceScheduler(std::move(core)));
}

SequenceScheduler::~SequenceScheduler() { stop(kDefaultGraceNs); }
void SequenceScheduler::enqueue(RequestPtr request) { core_->enqueue(std::move(request)); }
void SequenceScheduler::stop(int64_t grace_ns) { core_->stop(grace_ns); }
std::shared_ptr<ModelStatistics> SequenceScheduler::statistics() const { return core_->statistics; }
size_t SequenceScheduler::queued_requests() const { return core_->queued(); }

}  // namespace flywheel::schedule
