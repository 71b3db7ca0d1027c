// SPDX-License-Identifier: Apache-2.0
#include "server/ensemble/ensemble_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

namespace flywheel::ensemble {
namespace {

// Requests end on the threads of many models; few of them meet.
constexpr size_t kRecorders = 8;

}  // namespace

// Outlives the runner while requests of it are in flight.
class EnsembleRunner::Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(std::shared_ptr<const Blueprint> blueprint)
      : statistics(std::make_shared<schedule::ModelStatistics>(kRecorders)), blueprint_(std::move(blueprint)) {}

  void enqueue(schedule::RequestPtr request) {
    std::shared_ptr<Run> run;
    {
      std::lock_guard lock(mutex_);
      if (!stopping_) {
        const auto position = runs_.emplace(runs_.end());
        run = std::make_shared<Run>(blueprint_, request,
                                    [core = shared_from_this(), position](
                                        schedule::RequestPtr ended, schedule::InferResponse response,
                                        const Run::Times& times) { core->finish(position, ended, response, times); });
        *position = run;
      }
    }
    if (run == nullptr) {
      statistics->record_failure(schedule::FailureReason::kRejected, request->timeline.received_ns,
                                 schedule::monotonic_now_ns());
      request->respond(
          {unavailable("Server is stopping, scheduler for model has stopped accepting new inference requests"),
           schedule::FailureReason::kRejected,
           {}});
      return;
    }
    statistics->add_executing(1);
    run->start();
  }

  void stop(int64_t grace_ns) {
    const auto longest = std::chrono::hours(24 * 365);
    const auto grace = std::min<std::chrono::nanoseconds>(std::chrono::nanoseconds(std::max<int64_t>(grace_ns, 0)),
                                                          std::chrono::nanoseconds(longest));
    std::vector<std::shared_ptr<Run>> late;
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      empty_.wait_for(lock, grace, [&] { return runs_.empty(); });
      for (const std::weak_ptr<Run>& weak : runs_) {
        if (std::shared_ptr<Run> run = weak.lock()) late.push_back(std::move(run));
      }
    }
    for (const std::shared_ptr<Run>& run : late) {
      run->abandon(unavailable(fmt::format("model '{}' was stopped before it could answer", blueprint_->config.name)));
    }
  }

  const std::shared_ptr<schedule::ModelStatistics> statistics;

 private:
  void finish(std::list<std::weak_ptr<Run>>::iterator position, const schedule::RequestPtr& request,
              schedule::InferResponse& response, const Run::Times& times) {
    const int64_t now_ns = schedule::monotonic_now_ns();
    schedule::Timeline& timeline = request->timeline;
    if (response.status.is_ok()) {
      // The steps' times, added up: side by side or not, they are what the request cost.
      if (timeline.received_ns == 0) timeline.received_ns = now_ns;
      timeline.queued_ns = timeline.received_ns;
      timeline.batch_formed_ns = timeline.queued_ns + times.queue;
      timeline.input_done_ns = timeline.batch_formed_ns + times.input;
      timeline.compute_done_ns = timeline.input_done_ns + times.infer;
      timeline.output_done_ns = timeline.compute_done_ns + times.output;
      statistics->record_batch(next_recorder_.fetch_add(1, std::memory_order_relaxed) % kRecorders, {&request, 1},
                               {&response.status, 1}, schedule::DispatchReason::kNoDelay, now_ns);
    } else {
      statistics->record_failure(response.reason, timeline.received_ns, now_ns);
    }
    statistics->add_executing(-1);
    request->respond(std::move(response));
    std::lock_guard lock(mutex_);
    runs_.erase(position);
    if (runs_.empty()) empty_.notify_all();
  }

  const std::shared_ptr<const Blueprint> blueprint_;
  std::atomic<size_t> next_recorder_{0};
  std::mutex mutex_;
  std::condition_variable empty_;
  std::list<std::weak_ptr<Run>> runs_;
  bool stopping_ = false;
};

EnsembleRunner::EnsembleRunner(std::shared_ptr<const Blueprint> blueprint)
    : core_(std::make_shared<Core>(std::move(blueprint))) {}
EnsembleRunner::~EnsembleRunner() { stop(schedule::kDefaultGraceNs); }
void EnsembleRunner::enqueue(schedule::RequestPtr request) { core_->enqueue(std::move(request)); }
void EnsembleRunner::stop(int64_t grace_ns) { core_->stop(grace_ns); }
std::shared_ptr<schedule::ModelStatistics> EnsembleRunner::statistics() const { return core_->statistics; }

}  // namespace flywheel::ensemble
