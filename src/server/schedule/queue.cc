// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/queue.h"

#include <algorithm>

namespace flywheel::schedule {
namespace {

// When a wait of `timeout_us` that begins now ends; kNever when that is beyond the clock.
int64_t deadline_after(int64_t now_ns, uint64_t timeout_us) {
  constexpr uint64_t kNsPerUs = 1000;
  const uint64_t room_ns = static_cast<uint64_t>(kNever - now_ns);
  return timeout_us >= room_ns / kNsPerUs ? kNever : now_ns + static_cast<int64_t>(timeout_us * kNsPerUs);
}

}  // namespace

RequestQueue::RequestQueue(const config::ModelConfig& config) {
  if (config.dynamic_batching) batching_ = *config.dynamic_batching;
}

uint64_t RequestQueue::effective_level(uint64_t priority) const {
  if (batching_.priority_levels == 0) return 0;
  return priority == 0 || priority > batching_.priority_levels ? batching_.default_priority_level : priority;
}

const config::QueuePolicy& RequestQueue::policy_of(uint64_t level) const { return batching_.queue_policy(level); }

config::TimeoutAction RequestQueue::timeout_action(uint64_t level) const { return policy_of(level).timeout_action; }

bool RequestQueue::is_full(uint64_t level, size_t leaving) const {
  const size_t limit = policy_of(level).max_queue_size;
  if (limit == 0) return false;
  auto it = levels_.find(level);
  const size_t waiting = it == levels_.end() ? 0 : it->second.ready.size() + it->second.delayed.size();
  return waiting >= limit + leaving;
}

Status RequestQueue::push(const RequestPtr& request, int64_t now_ns, size_t leaving) {
  const uint64_t level = effective_level(request->priority);
  if (is_full(level, leaving)) return unavailable("Exceeds maximum queue size");
  const config::QueuePolicy& policy = policy_of(level);
  uint64_t timeout_us = policy.default_timeout_us;
  // A request can only shorten its wait; without a default there is nothing to shorten.
  if (policy.allow_timeout_override && request->timeout_us != 0) timeout_us = std::min(timeout_us, request->timeout_us);

  std::list<RequestPtr>& ready = levels_[level].ready;
  InferRequest::QueuePlace& place = request->place;
  place.position = ready.insert(ready.end(), request);
  place.queued = true;
  place.delayed = false;
  place.sequence = pushed_++;
  place.level = level;
  place.expiry_ns = timeout_us == 0 ? kNever : deadline_after(now_ns, timeout_us);
  if (place.expiry_ns != kNever) expiries_.emplace(std::pair(place.expiry_ns, place.sequence), request.get());
  request->timeline.queued_ns = now_ns;
  ++size_;
  return Status::ok();
}

RequestPtr RequestQueue::remove(InferRequest& request) {
  InferRequest::QueuePlace& place = request.place;
  auto level = levels_.find(place.level);
  RequestPtr taken = *place.position;
  (place.delayed ? level->second.delayed : level->second.ready).erase(place.position);
  if (level->second.ready.empty() && level->second.delayed.empty()) levels_.erase(level);
  if (place.expiry_ns != kNever) expiries_.erase({place.expiry_ns, place.sequence});
  cancelled_.erase(place.sequence);
  place.queued = false;
  --size_;
  return taken;
}

void RequestQueue::delay(InferRequest& request) {
  InferRequest::QueuePlace& place = request.place;
  Level& level = levels_.at(place.level);
  if (place.expiry_ns != kNever) expiries_.erase({place.expiry_ns, place.sequence});
  place.expiry_ns = kNever;
  if (!place.delayed) level.delayed.splice(level.delayed.end(), level.ready, place.position);
  place.delayed = true;
}

void RequestQueue::mark_cancelled(InferRequest& request) {
  if (request.place.queued) cancelled_.emplace(request.place.sequence, &request);
}

std::vector<InferRequest*> RequestQueue::cancelled() const {
  std::vector<InferRequest*> requests;
  for (const auto& [sequence, request] : cancelled_) requests.push_back(request);
  return requests;
}

std::vector<InferRequest*> RequestQueue::expired(int64_t now_ns) const {
  std::vector<InferRequest*> requests;
  for (const auto& [key, request] : expiries_) {
    if (key.first > now_ns) break;
    requests.push_back(request);
  }
  return requests;
}

InferRequest* RequestQueue::oldest_below_first_level() const {
  InferRequest* oldest = nullptr;
  if (levels_.empty()) return oldest;
  for (auto it = std::next(levels_.begin()); it != levels_.end(); ++it) {
    for (const std::list<RequestPtr>* list : {&it->second.ready, &it->second.delayed}) {
      if (list->empty()) continue;
      InferRequest* head = list->front().get();
      if (oldest == nullptr || head->place.sequence < oldest->place.sequence) oldest = head;
    }
  }
  return oldest;
}

}  // namespace flywheel::schedule
