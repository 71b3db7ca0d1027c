// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/policies/triton_policy.h"

#include <algorithm>

#include "server/schedule/queue.h"

namespace flywheel::schedule {
namespace {

constexpr uint64_t kStarvedShare = 8;
// How many waiting requests of other shapes are passed over at most, so that a decision stays short.
constexpr size_t kLookPast = 512;

int64_t ns_from_us(uint64_t us) {
  constexpr int64_t kLongest = kNever / 4;  // centuries, and safe to add to any time
  return us > static_cast<uint64_t>(kLongest / 1000) ? kLongest : static_cast<int64_t>(us) * 1000;
}

}  // namespace

TritonPolicy::TritonPolicy(const config::DynamicBatching& batching, int32_t max_batch_size, int64_t aging_ns,
                           const PolicyOptions& options, bool skips_other_shapes)
    : preferred_(batching.preferred_batch_sizes.begin(), batching.preferred_batch_sizes.end()),
      max_batch_(std::max(max_batch_size, 1)),
      delay_ns_(ns_from_us(batching.max_queue_delay_us)),
      aging_ns_(aging_ns),
      options_(options),
      skips_other_shapes_(skips_other_shapes) {
  std::sort(preferred_.begin(), preferred_.end());
  if (preferred_.empty()) preferred_.push_back(max_batch_);
}

bool TritonPolicy::is_preferred(int64_t rows) const {
  return std::binary_search(preferred_.begin(), preferred_.end(), rows);
}

InferRequest* TritonPolicy::starved(const PolicyInput& input) const {
  if (aging_ns_ == 0 || input.queue->dispatches() % kStarvedShare != kStarvedShare - 1) return nullptr;
  InferRequest* oldest = input.queue->oldest_below_first_level();
  return oldest != nullptr && input.now_ns - oldest->timeline.queued_ns >= aging_ns_ ? oldest : nullptr;
}

// Walks the queue in serving order as far as one batch can reach.
class TritonPolicy::Scan {
 public:
  explicit Scan(const TritonPolicy& policy) : policy_(policy) {}

  // False when the batch can take nothing more.
  bool consider(InferRequest& request) {
    if (!taken.empty()) {
      if (policy_.skips_other_shapes_ && request.signature != taken.front()->signature) return ++passed < kLookPast;
      // Nothing preferred is within reach any more: what there is goes, rather than grow past the largest preferred
      // size.
      if (rows + request.batch_size > policy_.preferred_.back() && best == 0) best = taken.size();
      if (rows + request.batch_size > policy_.max_batch_) {
        closed_by = DispatchReason::kFull;
        return false;
      }
      if (request.signature != taken.front()->signature) {
        closed_by = DispatchReason::kShapeChange;
        return false;
      }
    }
    taken.push_back(&request);
    rows += request.batch_size;
    oldest_ns = std::min(oldest_ns, request.timeline.queued_ns);
    if (policy_.is_preferred(rows)) best = taken.size();
    if (rows < policy_.max_batch_) return true;
    closed_by = DispatchReason::kFull;
    return false;
  }

  std::vector<InferRequest*> taken;
  int64_t rows = 0;
  int64_t oldest_ns = kNever;
  size_t passed = 0;  // requests of other shapes
  size_t best = 0;    // how many requests make up the largest preferred size; 0: none yet
  DispatchReason closed_by = DispatchReason::kNoDelay;

 private:
  const TritonPolicy& policy_;
};

Decision TritonPolicy::decide(const PolicyInput& input) const {
  Decision decision;
  if (decide_removals(input, decision)) return decision;
  const RequestQueue& queue = *input.queue;
  const bool draining = input.device.draining;
  if (queue.empty() || input.device.idle_instances == 0) return decision;
  if (queue.pushed() < options_.hold_until_queued && !draining) return decision;

  Scan scan(*this);
  InferRequest* first = starved(input);
  if (first == nullptr || scan.consider(*first))
    queue.visit([&](InferRequest& request) { return &request == first || scan.consider(request); });

  const int64_t due_ns = scan.oldest_ns + delay_ns_;
  const bool overdue = delay_ns_ > 0 && input.now_ns >= due_ns;
  if (scan.best != 0 && !overdue && !draining) {
    scan.taken.resize(scan.best);
    decision.reason = DispatchReason::kPreferredSize;
  } else if (scan.closed_by != DispatchReason::kNoDelay) {
    decision.reason = scan.closed_by;
  } else if (scan.rows >= preferred_.back()) {
    decision.reason = DispatchReason::kPreferredSize;
  } else if (overdue) {
    decision.reason = DispatchReason::kDelayElapsed;
  } else if (draining) {
    decision.reason = DispatchReason::kDraining;
  } else if (delay_ns_ == 0) {
    decision.reason = DispatchReason::kNoDelay;
  } else {
    decision.wait_until_ns = std::min(decision.wait_until_ns, due_ns);
    return decision;
  }
  decision.action = Decision::Action::kDispatch;
  decision.requests = std::move(scan.taken);
  return decision;
}

}  // namespace flywheel::schedule
