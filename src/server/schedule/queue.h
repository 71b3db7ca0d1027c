// SPDX-License-Identifier: Apache-2.0
// A model's waiting requests, in the order in which they are to be served: by priority level (1 first), within a level
// first come first served, and last within the level those whose time ran out under a DELAY policy. The scheduler and
// the simulator change it; policies only read it. Thread safety: none of its own; its owner's lock guards it. Takes
// memory only for what waits.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/request.h"

namespace flywheel::schedule {

class RequestQueue {
 public:
  // Without dynamic batching there is one level with no limits.
  explicit RequestQueue(const config::ModelConfig& config);

  // Appends to the request's level and fixes when its time runs out. Refuses when the level is full, not counting
  // `leaving` of its requests that are about to be taken out.
  Status push(const RequestPtr& request, int64_t now_ns, size_t leaving = 0);
  // The level that a request of this priority belongs to, and whether it is full.
  uint64_t effective_level(uint64_t priority) const;
  bool is_full(uint64_t level, size_t leaving = 0) const;
  // Out of the queue, wherever it stands in it.
  RequestPtr remove(InferRequest& request);
  // To the end of its level's delayed requests; it does not expire again.
  void delay(InferRequest& request);
  // Noted for the policy to see; nothing if the request is not queued.
  void mark_cancelled(InferRequest& request);
  // The owner took a batch out.
  void count_dispatch() { ++dispatches_; }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  uint64_t pushed() const { return pushed_; }          // requests accepted, ever
  uint64_t dispatches() const { return dispatches_; }  // batches taken out, ever
  int64_t next_expiry_ns() const { return expiries_.empty() ? kNever : expiries_.begin()->first.first; }
  config::TimeoutAction timeout_action(uint64_t level) const;
  // Requests noted as cancelled, in order of arrival.
  std::vector<InferRequest*> cancelled() const;
  bool any_cancelled() const { return !cancelled_.empty(); }
  // Requests whose time has run out at `now_ns`, earliest first.
  std::vector<InferRequest*> expired(int64_t now_ns) const;
  // The request that came first among those of lower levels than the first one waiting; null without such.
  InferRequest* oldest_below_first_level() const;

  // Calls f(InferRequest&) in serving order until it returns false.
  template <class F>
  void visit(F&& f) const {
    for (const auto& [level, lists] : levels_) {
      for (const RequestPtr& request : lists.ready)
        if (!f(*request)) return;
      for (const RequestPtr& request : lists.delayed)
        if (!f(*request)) return;
    }
  }

 private:
  struct Level {
    std::list<RequestPtr> ready;
    std::list<RequestPtr> delayed;
  };
  const config::QueuePolicy& policy_of(uint64_t level) const;

  config::DynamicBatching batching_;
  std::map<uint64_t, Level> levels_;                                // only those that hold requests
  std::map<std::pair<int64_t, uint64_t>, InferRequest*> expiries_;  // by time and order of arrival
  std::map<uint64_t, InferRequest*> cancelled_;                     // by order of arrival
  size_t size_ = 0;
  uint64_t pushed_ = 0;
  uint64_t dispatches_ = 0;
};

}  // namespace flywheel::schedule
