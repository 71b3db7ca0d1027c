// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/simulator.h"

#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "server/schedule/batch_former.h"
#include "server/schedule/ordered_release.h"

namespace flywheel::schedule {
namespace {

// What happens at one time happens in this order.
enum class EventKind : uint8_t { kFinish, kCancel, kArrive, kStop, kWake, kSample };

struct Event {
  int64_t at_ns;
  EventKind kind;
  size_t index;  // batch, arrival or sample

  bool operator>(const Event& other) const {
    return std::tie(at_ns, kind, index) > std::tie(other.at_ns, other.kind, other.index);
  }
};

class Simulation {
 public:
  Simulation(const config::ModelConfig& config, std::unique_ptr<BatchPolicy> policy,
             const std::vector<SimulatedArrival>& arrivals, const SimulationOptions& options)
      : arrivals_(arrivals),
        options_(options),
        statistics_(std::make_shared<ModelStatistics>(static_cast<size_t>(options.instances))),
        release_(config.dynamic_batching && config.dynamic_batching->preserve_ordering),
        former_(config, std::move(policy), options.latency_curve, statistics_) {
    for (int i = options.instances; i > 0; --i) idle_.push_back(i - 1);
    result_.answers.resize(arrivals.size());
    result_.samples.resize(options.sample_at_ns.size());
    requests_.resize(arrivals.size());
  }

  SimulationResult run() {
    for (size_t i = 0; i < arrivals_.size(); ++i) {
      events_.push({arrivals_[i].at_ns, EventKind::kArrive, i});
      if (arrivals_[i].cancel_at_ns != kNever) events_.push({arrivals_[i].cancel_at_ns, EventKind::kCancel, i});
    }
    for (size_t i = 0; i < options_.sample_at_ns.size(); ++i)
      events_.push({options_.sample_at_ns[i], EventKind::kSample, i});
    if (options_.stop_at_ns != kNever) events_.push({options_.stop_at_ns, EventKind::kStop, 0});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      handle(event);
      if (event.kind != EventKind::kSample) advance();
    }
    result_.statistics = statistics_->snapshot();
    return std::move(result_);
  }

 private:
  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kArrive: arrive(event.index); break;
      case EventKind::kFinish: finish(event.index); break;
      case EventKind::kSample: result_.samples[event.index] = statistics_->snapshot(); break;
      case EventKind::kStop: stopping_ = true; break;
      case EventKind::kWake: next_wake_ns_ = kNever; break;
      case EventKind::kCancel:
        if (RequestPtr request = requests_[event.index].lock()) {
          request->cancel();
          former_.cancel(*request);
        }
        break;
    }
  }

  DeviceState device() const {
    return {.instances = options_.instances, .idle_instances = static_cast<int>(idle_.size()), .draining = stopping_};
  }

  void arrive(size_t index) {
    const SimulatedArrival& arrival = arrivals_[index];
    auto request = std::make_shared<InferRequest>();
    request->batch_size = arrival.batch_size;
    request->priority = arrival.priority;
    request->timeout_us = arrival.timeout_us;
    request->signature = arrival.signature;
    request->requested_outputs = arrival.requested_outputs;
    request->timeline.received_ns = now_ns_;
    request->on_response = [this, index](InferRequest&, InferResponse response) {
      SimulatedAnswer& answer = result_.answers[index];
      answer.at_ns = now_ns_;
      ++answer.count;
      answer.status = std::move(response.status);
      answer.reason = response.reason;
      result_.answer_order.push_back(index);
    };
    requests_[index] = request;
    index_of_[request.get()] = index;
    InferResponse refusal;
    refusal.status = former_.push(request, now_ns_, device(), refusal.reason);
    if (!refusal.status.is_ok()) {
      request->respond(std::move(refusal));
    } else if (arrival.cancel_at_ns <= now_ns_) {
      former_.cancel(*request);
    }
  }

  void advance() {
    for (;;) {
      Step step = former_.next(now_ns_, device());
      switch (step.kind) {
        case Step::Kind::kWait:
          // An earlier wake-up than needed does no harm: the policy is asked again, that is all.
          if (step.wait_until_ns < next_wake_ns_) {
            next_wake_ns_ = step.wait_until_ns;
            events_.push({next_wake_ns_, EventKind::kWake, 0});
          }
          return;
        case Step::Kind::kRefuse:
          for (const RequestPtr& request : step.requests)
            request->respond({.status = step.status, .reason = step.failure});
          break;
        case Step::Kind::kBatch: start(std::move(step)); break;
      }
    }
  }

  void start(Step step) {
    SimulatedBatch batch;
    batch.start_ns = now_ns_;
    batch.instance = idle_.back();
    idle_.pop_back();
    batch.reason = step.reason;
    for (const RequestPtr& request : step.requests) {
      batch.requests.push_back(index_of_.at(request.get()));
      batch.rows += request->batch_size;
    }
    batch.end_ns = now_ns_ + options_.execution_ns(batch);
    events_.push({batch.end_ns, EventKind::kFinish, result_.batches.size()});
    result_.batches.push_back(std::move(batch));
    executing_.push_back({std::move(step.requests), release_.take_ticket()});
    statistics_->add_executing(1);
  }

  void finish(size_t index) {
    const SimulatedBatch& batch = result_.batches[index];
    Executing executing = std::move(executing_[index]);
    const Status status = options_.fails(batch) ? internal_error("simulated failure") : Status::ok();
    std::vector<Status> statuses(executing.requests.size(), status);
    Answers answers;
    for (const RequestPtr& request : executing.requests) {
      request->timeline.input_done_ns = batch.start_ns;
      request->timeline.compute_done_ns = batch.end_ns;
      request->timeline.output_done_ns = batch.end_ns;
      answers.emplace_back(request,
                           InferResponse{status, status.is_ok() ? FailureReason::kNone : FailureReason::kBackend, {}});
    }
    statistics_->add_executing(-1);
    statistics_->record_batch(static_cast<size_t>(batch.instance), executing.requests, statuses, batch.reason, now_ns_);
    idle_.push_back(batch.instance);
    release_.complete(executing.ticket, std::move(answers));
  }

  struct Executing {
    std::vector<RequestPtr> requests;
    uint64_t ticket;
  };

  const std::vector<SimulatedArrival>& arrivals_;
  const SimulationOptions& options_;
  std::shared_ptr<ModelStatistics> statistics_;
  OrderedRelease release_;
  BatchFormer former_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::weak_ptr<InferRequest>> requests_;
  std::map<const InferRequest*, size_t> index_of_;
  std::vector<Executing> executing_;  // by batch
  std::vector<int> idle_;
  bool stopping_ = false;
  int64_t next_wake_ns_ = kNever;
  int64_t now_ns_ = 0;
  SimulationResult result_;
};

}  // namespace

std::vector<int64_t> SimulationResult::batch_rows() const {
  std::vector<int64_t> rows;
  for (const SimulatedBatch& batch : batches) rows.push_back(batch.rows);
  return rows;
}

Result<SimulationResult> simulate(const config::ModelConfig& config, const std::vector<SimulatedArrival>& arrivals,
                                  const SimulationOptions& options) {
  FW_ASSIGN_OR_RETURN(std::unique_ptr<BatchPolicy> policy, make_policy(config, options.policy));
  return Simulation(config, std::move(policy), arrivals, options).run();
}

}  // namespace flywheel::schedule
