// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/batch_former.h"

#include <fmt/format.h>

#include <algorithm>

namespace flywheel::schedule {
namespace {

int64_t received_ns(const InferRequest& request) {
  return request.timeline.received_ns != 0 ? request.timeline.received_ns : request.timeline.queued_ns;
}

}  // namespace

BatchFormer::BatchFormer(const config::ModelConfig& config, std::unique_ptr<BatchPolicy> policy, LatencyCurve latency,
                         std::shared_ptr<ModelStatistics> statistics)
    : model_name_(config.name),
      max_batch_size_(std::max(config.max_batch_size, 1)),
      queue_(config),
      policy_(std::move(policy)),
      latency_(std::move(latency)),
      statistics_(std::move(statistics)) {}

Decision BatchFormer::peek(int64_t now_ns, const DeviceState& device) const {
  return policy_->decide({.now_ns = now_ns, .queue = &queue_, .latency = &latency_, .device = device});
}

Status BatchFormer::push(const RequestPtr& request, int64_t now_ns, const DeviceState& device, FailureReason& failure) {
  Status status;
  if (request->batch_size < 1 || request->batch_size > max_batch_size_) {
    status = invalid_argument(
        request->batch_size < 1
            ? fmt::format("inference request batch-size must be >= 1 for '{}'", model_name_)
            : fmt::format("inference request batch-size must be <= {} for '{}'", max_batch_size_, model_name_));
    failure = FailureReason::kOther;
  } else {
    const uint64_t level = queue_.effective_level(request->priority);
    size_t leaving = 0;
    if (queue_.is_full(level)) {
      const Decision decision = peek(now_ns, device);
      if (decision.action != Decision::Action::kWait && decision.action != Decision::Action::kDelay)
        leaving = static_cast<size_t>(std::count_if(decision.requests.begin(), decision.requests.end(),
                                                    [&](InferRequest* r) { return r->place.level == level; }));
    }
    status = queue_.push(request, now_ns, leaving);
    failure = FailureReason::kRejected;
  }
  if (status.is_ok()) {
    failure = FailureReason::kNone;
    statistics_->add_pending(1);
    return status;
  }
  statistics_->record_failure(failure, received_ns(*request), now_ns);
  return {status.code(), request_prefix(request->id) + status.message()};
}

std::vector<RequestPtr> BatchFormer::take_out(const std::vector<InferRequest*>& requests) {
  std::vector<RequestPtr> taken;
  taken.reserve(requests.size());
  for (InferRequest* request : requests) taken.push_back(queue_.remove(*request));
  statistics_->add_pending(-static_cast<int64_t>(taken.size()));
  return taken;
}

Step BatchFormer::refuse(const std::vector<InferRequest*>& requests, int64_t now_ns, Status status,
                         FailureReason failure) {
  Step step;
  step.kind = Step::Kind::kRefuse;
  step.requests = take_out(requests);
  step.status = std::move(status);
  step.failure = failure;
  for (const RequestPtr& request : step.requests) statistics_->record_failure(failure, received_ns(*request), now_ns);
  return step;
}

Step BatchFormer::next(int64_t now_ns, const DeviceState& device) {
  for (;;) {
    Decision decision = peek(now_ns, device);
    switch (decision.action) {
      case Decision::Action::kDelay:
        for (InferRequest* request : decision.requests) queue_.delay(*request);
        continue;
      case Decision::Action::kExpire:
        return refuse(decision.requests, now_ns, unavailable("Request timeout expired"), FailureReason::kRejected);
      case Decision::Action::kCancel:
        return refuse(decision.requests, now_ns, {Code::kCancelled, "Request was cancelled"}, FailureReason::kCanceled);
      case Decision::Action::kDispatch: {
        Step step;
        step.kind = Step::Kind::kBatch;
        step.reason = decision.reason;
        step.requests = take_out(decision.requests);
        for (const RequestPtr& request : step.requests) request->timeline.batch_formed_ns = now_ns;
        queue_.count_dispatch();
        return step;
      }
      case Decision::Action::kWait: {
        Step step;
        step.wait_until_ns = decision.wait_until_ns;
        return step;
      }
    }
  }
}

Step BatchFormer::abandon(int64_t now_ns, Status status) {
  std::vector<InferRequest*> all;
  queue_.visit([&](InferRequest& request) {
    all.push_back(&request);
    return true;
  });
  return refuse(all, now_ns, std::move(status), FailureReason::kRejected);
}

}  // namespace flywheel::schedule
