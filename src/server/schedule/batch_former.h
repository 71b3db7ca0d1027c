// SPDX-License-Identifier: Apache-2.0
// A model's queue and its policy, and the carrying out of the policy's decisions: everything that the scheduler and the
// simulator have in common, so that what is tested in virtual time is what runs.
// Thread safety: none of its own; its owner's lock guards it. Never calls a request's callback.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/schedule/batch_policy.h"
#include "server/schedule/queue.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

// What the owner has to do next.
struct Step {
  enum class Kind : uint8_t {
    kWait,    // until something changes or until wait_until_ns
    kBatch,   // execute `requests` together
    kRefuse,  // answer `requests` with `status`
  };
  Kind kind = Kind::kWait;
  std::vector<RequestPtr> requests;  // no longer queued
  int64_t wait_until_ns = kNever;
  DispatchReason reason = DispatchReason::kNoDelay;  // kBatch
  Status status;                                     // kRefuse
  FailureReason failure = FailureReason::kNone;      // kRefuse
};

class BatchFormer {
 public:
  BatchFormer(const config::ModelConfig& config, std::unique_ptr<BatchPolicy> policy, LatencyCurve latency,
              std::shared_ptr<ModelStatistics> statistics);

  // Queues the request or says why not; a refusal has been counted, but not answered. What the policy would take out of
  // the queue right now no longer counts against its limit: `device` has an idle instance only if one is about to take
  // it.
  Status push(const RequestPtr& request, int64_t now_ns, const DeviceState& device, FailureReason& failure);
  // Notes that a request was cancelled.
  void cancel(InferRequest& request) { queue_.mark_cancelled(request); }
  // What the policy would have done now.
  Decision peek(int64_t now_ns, const DeviceState& device) const;
  // Does it as far as the queue is concerned.
  Step next(int64_t now_ns, const DeviceState& device);
  // Takes out all that waits, to be refused.
  Step abandon(int64_t now_ns, Status status);

  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  int64_t next_expiry_ns() const { return queue_.next_expiry_ns(); }

 private:
  Step refuse(const std::vector<InferRequest*>& requests, int64_t now_ns, Status status, FailureReason failure);
  std::vector<RequestPtr> take_out(const std::vector<InferRequest*>& requests);

  const std::string model_name_;
  const int64_t max_batch_size_;
  RequestQueue queue_;
  std::unique_ptr<BatchPolicy> policy_;
  LatencyCurve latency_;
  std::shared_ptr<ModelStatistics> statistics_;
};

}  // namespace flywheel::schedule
