// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "server/schedule/batch_former.h"
#include "server/schedule/execution.h"
#include "server/schedule/ordered_release.h"

namespace flywheel::schedule {
namespace {

// About what two threads cost that wake each other.
constexpr int64_t kQuickNs = 10'000;

// The largest batch that takes less than waking another thread: whoever brings it executes it.
int64_t largest_quick_batch(const LatencyCurve& curve) {
  int64_t rows = 0;
  for (const LatencyCurve::Point& point : curve.points) {
    if (point.p50_ns <= 0 || point.p50_ns > kQuickNs) break;
    rows = point.batch_size;
  }
  return rows;
}

void answer(const Step& refusal) {
  for (const RequestPtr& request : refusal.requests)
    request->respond({.status = refusal.status, .reason = refusal.failure});
}

}  // namespace

// Shared by the scheduler and its threads, because a thread whose executor hangs outlives stop().
//
// Instances take turns: one is the leader, waits for the policy to form a batch, takes it out of the queue and passes
// the lead on before it executes. The keeper refuses what expires or is cancelled, at any time, and watches for batches
// that hang. All state below is guarded by mutex_; no callback is called under it, and of executors only give_up.
class Scheduler::Core : public CancelListener, public std::enable_shared_from_this<Scheduler::Core> {
 public:
  Core(const config::ModelConfig& config, std::unique_ptr<BatchPolicy> policy,
       std::vector<std::unique_ptr<BatchExecutor>> executors, const SchedulerOptions& options)
      : name_(config.name),
        options_(options),
        quick_rows_(largest_quick_batch(options.latency_curve)),
        executors_(std::move(executors)),
        statistics(options.statistics != nullptr ? options.statistics
                                                 : std::make_shared<ModelStatistics>(executors_.size())),
        release_(config.dynamic_batching && config.dynamic_batching->preserve_ordering),
        former_(config, std::move(policy), options.latency_curve, statistics),
        idle_(static_cast<int>(executors_.size())) {
    if (options_.arbiter != nullptr)
      client_ = options_.arbiter->add_client(static_cast<int>(config.device_priority), options_.arbiter_weight,
                                             options_.arbiter_needs);
  }

  void start();
  void enqueue(RequestPtr request);
  void stop(int64_t grace_ns);
  void on_cancel(InferRequest& request) override;
  size_t queued() const {
    std::lock_guard lock(mutex_);
    return former_.size();
  }

 private:
  // A batch that an instance executes. It leaves running_ when it is answered, whoever answers it.
  struct Job {
    std::vector<RequestPtr> requests;  // fixed once the job runs: the keeper may read it meanwhile
    DispatchReason reason = DispatchReason::kNoDelay;
    uint64_t ticket = 0;
    size_t instance = 0;
    int64_t hangs_at_ns = kNever;
    DeviceArbiter::Lease lease;
    bool given_up = false;  // answered without the executor
  };
  using JobPtr = std::shared_ptr<Job>;

  void run_instance(size_t index);
  void run_keeper();
  JobPtr form_job(std::unique_lock<std::mutex>& lock);
  JobPtr make_job(Step& step, DeviceArbiter::Lease lease, int64_t now_ns);
  JobPtr form_job_here_locked(int64_t now_ns);
  void begin_locked(const JobPtr& job);
  void execute(size_t index, const JobPtr& job);
  void give_up(const JobPtr& job, std::unique_lock<std::mutex>& lock, const Status& status);
  void call_leader_locked();
  void call_keeper_locked(int64_t by_ns);
  bool all_hang_locked() const { return hung_ > 0 && hung_ == static_cast<int>(executors_.size()); }
  DeviceState device_locked() const {
    return {.instances = static_cast<int>(executors_.size()), .idle_instances = idle_, .draining = stopping_};
  }

  const std::string name_;
  const SchedulerOptions options_;
  const int64_t quick_rows_;
  const std::vector<std::unique_ptr<BatchExecutor>> executors_;

 public:
  const std::shared_ptr<ModelStatistics> statistics;

 private:
  OrderedRelease release_;
  std::shared_ptr<DeviceArbiter::Client> client_;
  std::mutex stop_mutex_;             // taken before mutex_, held throughout stop
  std::vector<std::thread> threads_;  // guarded by stop_mutex_
  std::thread keeper_;                // likewise

  mutable std::mutex mutex_;
  BatchFormer former_;
  int idle_;       // instances that execute nothing
  int hung_ = 0;   // instances whose batch was given up and whose executor has not returned
  int alive_ = 0;  // instance threads that have not ended
  bool stopping_ = false;
  std::list<JobPtr> running_;

  bool lent_ = false;            // the only instance's executor is used by a caller of enqueue
  bool led_ = false;             // an instance has the lead
  bool leader_waits_ = false;    // and waits for a reason to act
  bool leader_called_ = false;   // which it has been given
  int64_t leader_wakes_ns_ = 0;  // or will take for itself then
  bool leader_lacks_device_ = false;
  std::condition_variable leader_cv_;
  std::condition_variable turn_cv_;

  bool keeper_ends_ = false;
  bool keeper_called_ = false;
  int64_t keeper_wakes_ns_ = kNever;
  std::condition_variable keeper_cv_;
  std::condition_variable ended_cv_;
};

void Scheduler::Core::start() {
  std::lock_guard stop_lock(stop_mutex_);
  alive_ = static_cast<int>(executors_.size());
  keeper_ = std::thread([core = shared_from_this()] { core->run_keeper(); });
  for (size_t i = 0; i < executors_.size(); ++i)
    threads_.emplace_back([core = shared_from_this(), i] { core->run_instance(i); });
}

void Scheduler::Core::call_leader_locked() {
  if (!leader_waits_ || leader_called_) return;
  leader_called_ = true;
  leader_cv_.notify_one();
}

void Scheduler::Core::call_keeper_locked(int64_t by_ns) {
  if (by_ns >= keeper_wakes_ns_ || keeper_called_) return;
  keeper_called_ = true;
  keeper_cv_.notify_one();
}

// A batch for the caller itself, if the only instance is idle and the policy would send one now; null otherwise.
Scheduler::Core::JobPtr Scheduler::Core::form_job_here_locked(int64_t now_ns) {
  if (quick_rows_ == 0 || executors_.size() != 1 || !leader_waits_ || leader_called_ || lent_ || idle_ == 0)
    return nullptr;
  const Decision decision = former_.peek(now_ns, device_locked());
  if (decision.action != Decision::Action::kDispatch) return nullptr;
  int64_t rows = 0;
  for (const InferRequest* request : decision.requests) rows += request->batch_size;
  if (rows > quick_rows_) return nullptr;
  DeviceArbiter::Lease lease;
  if (client_ != nullptr) {
    lease = options_.arbiter->try_acquire(client_);
    if (!lease.is_held()) return nullptr;
  }
  Step step = former_.next(now_ns, device_locked());
  JobPtr job = make_job(step, std::move(lease), now_ns);
  lent_ = true;
  begin_locked(job);
  return job;
}

void Scheduler::Core::enqueue(RequestPtr request) {
  request->set_cancel_listener(weak_from_this());
  InferResponse refusal;
  JobPtr job;
  {
    std::lock_guard lock(mutex_);
    const int64_t now_ns = monotonic_now_ns();
    if (stopping_) {
      refusal.status =
          unavailable("Server is stopping, scheduler for model has stopped accepting new inference requests");
    } else if (all_hang_locked()) {
      refusal.status = unavailable(fmt::format("all instances of model '{}' have stopped responding", name_));
    }
    if (!refusal.status.is_ok()) {
      refusal.reason = FailureReason::kRejected;
      statistics->record_failure(refusal.reason, request->timeline.received_ns, now_ns);
    } else {
      // An idle instance is about to take what the policy would send, unless it waits for the device.
      DeviceState device = device_locked();
      if (leader_lacks_device_) device.idle_instances = 0;
      refusal.status = former_.push(request, now_ns, device, refusal.reason);
    }
    if (refusal.status.is_ok() && !request->is_cancelled()) job = form_job_here_locked(now_ns);
    if (refusal.status.is_ok() && job == nullptr) {
      // The leader is woken only if it would do something, so that waiting for a batch to fill costs no wake-ups.
      if (leader_waits_ && !leader_called_) {
        const Decision decision = former_.peek(now_ns, device_locked());
        if (decision.action != Decision::Action::kWait || decision.wait_until_ns < leader_wakes_ns_)
          call_leader_locked();
      }
      call_keeper_locked(former_.next_expiry_ns());
      // A cancel() that came before the listener was set found nobody to tell.
      if (request->is_cancelled()) {
        former_.cancel(*request);
        call_keeper_locked(now_ns);
      }
      return;
    }
  }
  if (job == nullptr) {
    request->respond(std::move(refusal));
    return;
  }
  execute(0, job);
  std::lock_guard lock(mutex_);
  ++idle_;
  lent_ = false;
  if (!former_.empty() || stopping_) call_leader_locked();
}

void Scheduler::Core::on_cancel(InferRequest& request) {
  std::lock_guard lock(mutex_);
  if (!request.place.queued) return;
  former_.cancel(request);
  call_keeper_locked(monotonic_now_ns());
}

Scheduler::Core::JobPtr Scheduler::Core::make_job(Step& step, DeviceArbiter::Lease lease, int64_t now_ns) {
  auto job = std::make_shared<Job>();
  job->requests = std::move(step.requests);
  job->reason = step.reason;
  job->ticket = release_.take_ticket();
  job->lease = std::move(lease);
  if (options_.execution_timeout_ns > 0) job->hangs_at_ns = deadline(now_ns, options_.execution_timeout_ns);
  return job;
}

void Scheduler::Core::begin_locked(const JobPtr& job) {
  --idle_;
  running_.push_back(job);
  statistics->add_executing(1);
  call_keeper_locked(job->hangs_at_ns);
}

Scheduler::Core::JobPtr Scheduler::Core::form_job(std::unique_lock<std::mutex>& lock) {
  DeviceArbiter::Lease lease;
  bool have_device = client_ == nullptr;
  for (;;) {
    const int64_t now_ns = monotonic_now_ns();
    if (!have_device && former_.peek(now_ns, device_locked()).action == Decision::Action::kDispatch) {
      // The batch stays in the queue until the device is ours: it may grow, and what it holds may expire or be
      // cancelled.
      leader_lacks_device_ = true;
      lock.unlock();
      lease = options_.arbiter->acquire(client_);
      have_device = lease.is_held();
      lock.lock();
      leader_lacks_device_ = false;
      continue;
    }
    Step step = former_.next(now_ns, device_locked());
    if (step.kind == Step::Kind::kRefuse) {
      lock.unlock();
      answer(step);
      step.requests.clear();
      lock.lock();
      continue;
    }
    if (step.kind == Step::Kind::kBatch) {
      return make_job(step, std::move(lease), now_ns);
    }
    if (client_ != nullptr && have_device) {
      lock.unlock();
      lease.release();
      have_device = false;
      lock.lock();
      continue;  // something may have arrived meanwhile
    }
    if (stopping_ && former_.empty() && !lent_) return nullptr;
    leader_waits_ = true;
    leader_called_ = false;
    leader_wakes_ns_ = step.wait_until_ns;
    wait_until(leader_cv_, lock, step.wait_until_ns, [&] { return leader_called_; });
    leader_waits_ = false;
  }
}

void Scheduler::Core::run_instance(size_t index) {
  std::unique_lock lock(mutex_);
  for (;;) {
    turn_cv_.wait(lock, [&] { return !led_; });
    led_ = true;
    JobPtr job = form_job(lock);
    if (job != nullptr) {
      job->instance = index;
      begin_locked(job);
    }
    led_ = false;
    turn_cv_.notify_one();
    if (job == nullptr) break;
    lock.unlock();
    execute(index, job);
    job.reset();
    lock.lock();
    ++idle_;
  }
  --alive_;
  ended_cv_.notify_all();
}

void Scheduler::Core::execute(size_t index, const JobPtr& job) {
  const std::vector<RequestPtr>& requests = job->requests;
  Batch batch;
  batch.items.reserve(requests.size());
  for (const RequestPtr& request : requests) {
    batch.items.push_back({.request = request.get(), .status = {}, .outputs = {}, .parameters = {}, .shared = request});
    batch.batch_size += request->batch_size;
  }
  const Status status = execute_batch(*executors_[index], batch, name_);
  const int64_t now_ns = monotonic_now_ns();
  DeviceArbiter::Lease lease;
  {
    std::lock_guard lock(mutex_);
    if (job->given_up) {
      --hung_;
      return;
    }
    std::erase(running_, job);
    lease = std::move(job->lease);
    statistics->add_executing(-1);
  }
  lease.release();

  Answers answers;
  std::vector<Status> statuses;
  for (size_t i = 0; i < requests.size(); ++i) {
    BatchItem& item = batch.items[i];
    InferResponse response = take_response(item, status);
    stamp(requests[i]->timeline, batch, now_ns);
    statuses.push_back(response.status);
    if (!item.deferred || !status.is_ok()) answers.emplace_back(requests[i], std::move(response));
  }
  statistics->record_batch(index, requests, statuses, job->reason, now_ns);
  release_.complete(job->ticket, std::move(answers));
}

// Answers for an executor that does not. Releases the lock meanwhile.
void Scheduler::Core::give_up(const JobPtr& job, std::unique_lock<std::mutex>& lock, const Status& status) {
  std::erase(running_, job);
  job->given_up = true;
  ++hung_;
  // Under the lock, or it might be the instance's next batch that suffers.
  executors_[job->instance]->give_up();
  ended_cv_.notify_all();
  statistics->add_executing(-1);
  const int64_t now_ns = monotonic_now_ns();
  DeviceArbiter::Lease lease = std::move(job->lease);
  lock.unlock();
  lease.release();
  Answers answers;
  for (const RequestPtr& request : job->requests) {
    statistics->record_failure(FailureReason::kBackend, request->timeline.received_ns, now_ns);
    answers.emplace_back(request, InferResponse{status, FailureReason::kBackend, {}});
  }
  release_.complete(job->ticket, std::move(answers));
  lock.lock();
}

void Scheduler::Core::run_keeper() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const int64_t now_ns = monotonic_now_ns();
    auto hung =
        std::find_if(running_.begin(), running_.end(), [&](const JobPtr& j) { return j->hangs_at_ns <= now_ns; });
    if (hung != running_.end()) {
      give_up(JobPtr(*hung), lock,
              internal_error(
                  fmt::format("model '{}' did not finish a batch within {} ms; its instance is out of service until "
                              "it does",
                              name_, options_.execution_timeout_ns / 1'000'000)));
      continue;
    }
    // With no instance to give a batch to, the policy can only refuse or wait.
    DeviceState device = device_locked();
    device.idle_instances = 0;
    Step step =
        all_hang_locked() && !former_.empty()
            ? former_.abandon(now_ns,
                              unavailable(fmt::format("all instances of model '{}' have stopped responding", name_)))
            : former_.next(now_ns, device);
    if (step.kind == Step::Kind::kRefuse) {
      // Without them the leader may find a batch complete, or nothing left to wait for.
      call_leader_locked();
      ended_cv_.notify_all();
      lock.unlock();
      answer(step);
      step.requests.clear();
      lock.lock();
      continue;
    }
    if (keeper_ends_) return;
    keeper_wakes_ns_ = step.wait_until_ns;
    for (const JobPtr& job : running_) keeper_wakes_ns_ = std::min(keeper_wakes_ns_, job->hangs_at_ns);
    keeper_called_ = false;
    wait_until(keeper_cv_, lock, keeper_wakes_ns_, [&] { return keeper_called_; });
    keeper_wakes_ns_ = 0;  // awake: it looks at everything before it waits again
  }
}

void Scheduler::Core::stop(int64_t grace_ns) {
  std::lock_guard stop_lock(stop_mutex_);
  if (!keeper_.joinable()) return;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  call_leader_locked();
  const Status late = unavailable(fmt::format("model '{}' was stopped before it could answer", name_));
  const int64_t until_ns = deadline(monotonic_now_ns(), std::max<int64_t>(grace_ns, 0));
  wait_until(ended_cv_, lock, until_ns, [&] { return alive_ == 0; });
  if (!former_.empty()) {
    const Step step = former_.abandon(monotonic_now_ns(), late);
    call_leader_locked();
    lock.unlock();
    answer(step);
    lock.lock();
  }
  while (!running_.empty()) give_up(JobPtr(running_.front()), lock, late);
  if (client_ != nullptr) {
    // An instance may be waiting for a device that another model does not give back.
    lock.unlock();
    options_.arbiter->cancel(client_);
    lock.lock();
  }
  // What is left of the threads is on its way out, or hangs in an executor and may never return: that is not waited
  // for.
  ended_cv_.wait(lock, [&] { return alive_ <= hung_; });
  const bool all_ended = alive_ == 0;
  keeper_ends_ = true;
  keeper_called_ = true;
  keeper_cv_.notify_one();
  lock.unlock();
  if (all_ended) {
    for (const auto& executor : executors_) executor->drain(until_ns);
  }
  keeper_.join();
  for (std::thread& thread : threads_) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const config::ModelConfig& config,
                                                     std::vector<std::unique_ptr<BatchExecutor>> executors,
                                                     const SchedulerOptions& options) {
  if (executors.empty())
    return invalid_argument(fmt::format("model '{}' has no instance to execute its requests", config.name));
  FW_ASSIGN_OR_RETURN(std::unique_ptr<BatchPolicy> policy, make_policy(config, options.policy));
  auto core = std::make_shared<Core>(config, std::move(policy), std::move(executors), options);
  core->start();
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(core)));
}

Scheduler::~Scheduler() { stop(kDefaultGraceNs); }
void Scheduler::enqueue(RequestPtr request) { core_->enqueue(std::move(request)); }
void Scheduler::stop(int64_t grace_ns) { core_->stop(grace_ns); }
std::shared_ptr<ModelStatistics> Scheduler::statistics() const { return core_->statistics; }
size_t Scheduler::queued_requests() const { return core_->queued(); }

}  // namespace flywheel::schedule
