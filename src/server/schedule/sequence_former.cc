// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/sequence_former.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace flywheel::schedule {
namespace {

constexpr int64_t kLongest = kNever / 4;  // centuries, and safe to add to any time

int64_t ns_from_us(uint64_t us) {
  return us > static_cast<uint64_t>(kLongest / 1000) ? kLongest : static_cast<int64_t>(us) * 1000;
}

std::string id_text(const SequenceId& id) {
  if (const auto* text = std::get_if<std::string>(&id)) return *text;
  return std::to_string(std::get<uint64_t>(id));
}

int64_t received_ns(const InferRequest& request) {
  return request.timeline.received_ns != 0 ? request.timeline.received_ns : request.timeline.queued_ns;
}

}  // namespace

SequenceFormer::SequenceFormer(const config::ModelConfig& config, int instances,
                               std::shared_ptr<ModelStatistics> statistics)
    : model_name_(config.name),
      batching_(*config.sequence_batching),
      max_batch_(std::max(config.max_batch_size, 1)),
      delay_ns_(ns_from_us(batching_.max_queue_delay_us)),
      idle_ns_(ns_from_us(batching_.max_idle_us)),
      preferred_(batching_.preferred_batch_sizes.begin(), batching_.preferred_batch_sizes.end()),
      lanes_(static_cast<size_t>(std::max(instances, 1))),
      statistics_(std::move(statistics)) {
  std::sort(preferred_.begin(), preferred_.end());
  if (preferred_.empty()) preferred_.push_back(max_batch_);
  const int64_t candidates = batching_.max_candidate_sequences;
  const int64_t slots = batching_.oldest && candidates > 0 ? candidates : max_batch_;
  for (Lane& lane : lanes_) lane.slots.resize(static_cast<size_t>(slots));
}

// The lowest slot first, so that instances fill evenly and direct batches stay short.
SequenceFormer::Slot* SequenceFormer::find_free(Place& place) {
  for (size_t slot = 0; slot < lanes_[0].slots.size(); ++slot) {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].hung || lanes_[lane].slots[slot].used) continue;
      place = {static_cast<int>(lane), slot};
      return &lanes_[lane].slots[slot];
    }
  }
  return nullptr;
}

int64_t SequenceFormer::removal_ns(const InferRequest& request, int64_t now_ns) const {
  return request.timeout_us != 0 ? now_ns + ns_from_us(request.timeout_us) : kNever;
}

int64_t SequenceFormer::idle_end_ns(int64_t now_ns) const { return now_ns + idle_ns_; }

Status SequenceFormer::push(const RequestPtr& request, int64_t now_ns, int& instance) {
  instance = -1;
  const SequencePosition& position = request->sequence;
  Status status;
  const auto slot_of = open_.find(position.id);
  const auto backlog_of = open_backlog_.find(position.id);
  const bool known = slot_of != open_.end() || backlog_of != open_backlog_.end();
  if (request->batch_size > 1) {
    status = invalid_argument(
        fmt::format("inference request to model '{}' must specify batch-size 1 due to requirements of sequence batcher",
                    model_name_));
  } else if (!position.any()) {
    status = invalid_argument(fmt::format(
        "inference request to model '{}' must specify a non-zero or non-empty correlation ID", model_name_));
  } else if (!position.start && !known) {
    status = invalid_argument(fmt::format(
        "inference request for sequence {} to model '{}' must specify the START flag on the first request of the "
        "sequence",
        id_text(position.id), model_name_));
  }
  if (!status.is_ok()) {
    statistics_->record_failure(FailureReason::kOther, received_ns(*request), now_ns);
    return status;
  }
  if (position.start && known) {
    log(LogLevel::kWarning,
        "sequence {} for model '{}' has a conflict. The previous sequence did not end before this sequence start. "
        "Previous sequence will be terminated early.",
        id_text(position.id), model_name_);
  }
  request->timeline.queued_ns = now_ns;
  request->place.queued = true;
  ++waiting_;
  statistics_->add_pending(1);

  if (backlog_of != open_backlog_.end() && slot_of == open_.end()) {
    Backlog& backlog = *backlog_of->second;
    if (request->timeout_us != 0)
      backlog.expiry_ns = std::min(backlog.expiry_ns, now_ns + ns_from_us(request->timeout_us));
    backlog.queue.push_back(request);
    backlog.ends = position.end;
    if (position.end) open_backlog_.erase(backlog_of);
    return {};
  }
  Place place;
  Slot* slot = nullptr;
  if (slot_of != open_.end()) {
    place = slot_of->second;
    slot = &lanes_[static_cast<size_t>(place.first)].slots[place.second];
  } else {
    slot = find_free(place);
    if (slot == nullptr) {
      backlog_.push_back({position.id, position.end, {request}, kNever});
      if (request->timeout_us != 0) backlog_.back().expiry_ns = now_ns + ns_from_us(request->timeout_us);
      if (!position.end) open_backlog_[position.id] = std::prev(backlog_.end());
      return {};
    }
    *slot = {};
    slot->used = true;
    slot->id = position.id;
    if (!position.end) open_[position.id] = place;
  }
  instance = place.first;
  slot->queue.push_back(request);
  slot->touched_ns = now_ns;
  if (position.end) {
    slot->ends = true;
    open_.erase(position.id);
  }
  return {};
}

void SequenceFormer::forget(const SequenceId& id, const Slot* slot) {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  const auto [lane, index] = it->second;
  if (&lanes_[static_cast<size_t>(lane)].slots[index] == slot) open_.erase(it);
}

// Gives the slot to the sequence that has waited longest.
void SequenceFormer::free_slot(Place place, int64_t now_ns) {
  Lane& lane = lanes_[static_cast<size_t>(place.first)];
  Slot& slot = lane.slots[place.second];
  forget(slot.id, &slot);
  slot = {};
  if (backlog_.empty() || lane.hung) return;
  Backlog& first = backlog_.front();
  slot.used = true;
  slot.id = first.id;
  slot.ends = first.ends;
  slot.queue = std::move(first.queue);
  slot.touched_ns = now_ns;
  if (!slot.ends) {
    open_backlog_.erase(slot.id);
    open_[slot.id] = place;
  }
  backlog_.pop_front();
}

void SequenceFormer::take(Slot& slot, SequenceRow& row, int64_t now_ns) {
  row.request = std::move(slot.queue.front());
  slot.queue.pop_front();
  if (row.request->sequence.start) slot.state.clear();
  row.state = slot.state;
  slot.in_flight = true;
  row.request->place.queued = false;
  row.request->timeline.batch_formed_ns = now_ns;
  --waiting_;
  statistics_->add_pending(-1);
}

// States are inputs too, and rows of one batch are of one shape.
bool SequenceFormer::fit(const Slot& a, const Slot& b) const {
  if (a.queue.front()->signature != b.queue.front()->signature) return false;
  static const std::vector<OutputTensor> kInitial;
  const auto state = [](const Slot& slot) -> const std::vector<OutputTensor>& {
    return slot.queue.front()->sequence.start ? kInitial : slot.state;
  };
  const std::vector<OutputTensor>&x = state(a), &y = state(b);
  const bool variable = std::any_of(batching_.states.begin(), batching_.states.end(), [](const auto& s) {
    return std::find(s.dims.begin(), s.dims.end(), -1) != s.dims.end();
  });
  if (!variable) return true;
  if (x.size() != y.size()) return false;
  return std::equal(x.begin(), x.end(), y.begin(), [](const auto& p, const auto& q) { return p.shape == q.shape; });
}

SequenceStep SequenceFormer::next(int instance, int64_t now_ns, bool draining) {
  Lane& lane = lanes_[static_cast<size_t>(instance)];
  if (lane.hung) return {};
  return batching_.oldest ? next_oldest(lane, now_ns, draining) : next_direct(lane, now_ns, draining);
}

SequenceStep SequenceFormer::next_direct(Lane& lane, int64_t now_ns, bool draining) {
  SequenceStep step;
  const Slot* first = nullptr;
  size_t end = 0, ready = 0;
  int64_t earliest_ns = kNever;
  for (size_t i = 0; i < lane.slots.size(); ++i) {
    const Slot& slot = lane.slots[i];
    if (slot.queue.empty() || slot.in_flight) continue;
    if (first == nullptr) first = &slot;
    end = i + 1;
    ++ready;
    earliest_ns = std::min(earliest_ns, slot.queue.front()->timeline.queued_ns);
  }
  if (first == nullptr) return step;
  const bool patient = delay_ns_ > 0 && batching_.minimum_slot_utilization > 0 && !draining;
  const bool filled = static_cast<float>(ready) / static_cast<float>(max_batch_) >= batching_.minimum_slot_utilization;
  if (patient && !filled && now_ns < earliest_ns + delay_ns_) {
    step.wait_until_ns = earliest_ns + delay_ns_;
    return step;
  }
  step.kind = SequenceStep::Kind::kBatch;
  step.reason = draining   ? DispatchReason::kDraining
                : !patient ? DispatchReason::kNoDelay
                : filled   ? DispatchReason::kPreferredSize
                           : DispatchReason::kDelayElapsed;
  std::vector<bool> takes(end);
  for (size_t i = 0; i < end; ++i) {
    const Slot& slot = lane.slots[i];
    takes[i] = !slot.queue.empty() && !slot.in_flight && (&slot == first || fit(*first, slot));
  }
  while (!takes[end - 1]) --end;
  for (size_t i = 0; i < end; ++i) {
    SequenceRow row;
    row.slot = i;
    if (takes[i]) take(lane.slots[i], row, now_ns);
    step.rows.push_back(std::move(row));
  }
  return step;
}

SequenceStep SequenceFormer::next_oldest(Lane& lane, int64_t now_ns, bool draining) {
  SequenceStep step;
  std::vector<size_t> ready;
  for (size_t i = 0; i < lane.slots.size(); ++i) {
    if (!lane.slots[i].queue.empty() && !lane.slots[i].in_flight) ready.push_back(i);
  }
  if (ready.empty()) return step;
  std::stable_sort(ready.begin(), ready.end(), [&](size_t a, size_t b) {
    return lane.slots[a].queue.front()->timeline.queued_ns < lane.slots[b].queue.front()->timeline.queued_ns;
  });
  size_t count = 1, best = 0;
  bool closed = false;
  while (count < ready.size() && static_cast<int64_t>(count) < max_batch_ && !closed) {
    closed = !fit(lane.slots[ready[0]], lane.slots[ready[count]]);
    if (!closed) ++count;
  }
  for (int64_t size : preferred_) {
    if (size <= static_cast<int64_t>(count)) best = static_cast<size_t>(size);
  }
  const int64_t due_ns = lane.slots[ready[0]].queue.front()->timeline.queued_ns + delay_ns_;
  const bool overdue = delay_ns_ > 0 && now_ns >= due_ns;
  if (best != 0 && !overdue && !draining) {
    count = best;
    step.reason = DispatchReason::kPreferredSize;
  } else if (closed) {
    step.reason = DispatchReason::kShapeChange;
  } else if (static_cast<int64_t>(count) >= max_batch_) {
    step.reason = DispatchReason::kFull;
  } else if (overdue) {
    step.reason = DispatchReason::kDelayElapsed;
  } else if (draining) {
    step.reason = DispatchReason::kDraining;
  } else if (delay_ns_ > 0) {
    step.wait_until_ns = due_ns;
    return step;
  }
  step.kind = SequenceStep::Kind::kBatch;
  for (size_t i = 0; i < count; ++i) {
    SequenceRow row;
    row.slot = ready[i];
    take(lane.slots[ready[i]], row, now_ns);
    step.rows.push_back(std::move(row));
  }
  return step;
}

void SequenceFormer::finish(int instance, const std::vector<SequenceRow>& rows,
                            std::vector<std::vector<OutputTensor>> states, int64_t now_ns) {
  Lane& lane = lanes_[static_cast<size_t>(instance)];
  lane.hung = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].request == nullptr) continue;
    Slot& slot = lane.slots[rows[i].slot];
    slot.in_flight = false;
    slot.touched_ns = now_ns;
    if (i < states.size() && !states[i].empty()) slot.state = std::move(states[i]);
    const bool over = slot.ends_early || (rows[i].request->sequence.end && slot.queue.empty());
    if (over) free_slot({instance, rows[i].slot}, now_ns);
  }
  // A lane that hung got no sequences meanwhile.
  for (size_t i = 0; i < lane.slots.size() && !backlog_.empty(); ++i) {
    if (!lane.slots[i].used) free_slot({instance, i}, now_ns);
  }
}

SequenceStep SequenceFormer::refuse(std::vector<RequestPtr> requests, int64_t now_ns, Status status,
                                    FailureReason failure) {
  SequenceStep step;
  step.kind = SequenceStep::Kind::kRefuse;
  waiting_ -= requests.size();
  statistics_->add_pending(-static_cast<int64_t>(requests.size()));
  for (const RequestPtr& request : requests) {
    request->place.queued = false;
    statistics_->record_failure(failure, received_ns(*request), now_ns);
  }
  step.refused = std::move(requests);
  step.status = std::move(status);
  step.failure = failure;
  return step;
}

SequenceStep SequenceFormer::removals(int64_t now_ns, bool draining) {
  SequenceStep step;
  const auto cancelled = [](const std::deque<RequestPtr>& queue) {
    return std::any_of(queue.begin(), queue.end(), [](const RequestPtr& request) { return request->is_cancelled(); });
  };
  std::vector<RequestPtr> refused;
  const auto move_all = [&refused](std::deque<RequestPtr>& queue) {
    refused.insert(refused.end(), std::make_move_iterator(queue.begin()), std::make_move_iterator(queue.end()));
    queue.clear();
  };
  const auto drop_backlog = [&](std::list<Backlog>::iterator at) {
    move_all(at->queue);
    const auto open = open_backlog_.find(at->id);
    if (open != open_backlog_.end() && open->second == at) open_backlog_.erase(open);
    return backlog_.erase(at);
  };
  if (any_cancelled_) {
    any_cancelled_ = false;
    for (auto it = backlog_.begin(); it != backlog_.end();)
      it = cancelled(it->queue) ? drop_backlog(it) : std::next(it);
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (size_t i = 0; i < lanes_[lane].slots.size(); ++i) {
        Slot& slot = lanes_[lane].slots[i];
        if (!cancelled(slot.queue)) continue;
        move_all(slot.queue);
        forget(slot.id, &slot);
        if (slot.in_flight) {
          slot.ends_early = true;
        } else {
          free_slot({static_cast<int>(lane), i}, now_ns);
        }
      }
    }
    if (!refused.empty())
      return refuse(std::move(refused), now_ns, {Code::kCancelled, "Request was cancelled"}, FailureReason::kCanceled);
  }
  for (auto it = backlog_.begin(); it != backlog_.end();) {
    if (it->expiry_ns <= now_ns) {
      it = drop_backlog(it);
      continue;
    }
    step.wait_until_ns = std::min(step.wait_until_ns, it->expiry_ns);
    ++it;
  }
  if (!refused.empty())
    return refuse(std::move(refused), now_ns, unavailable("timeout of the corresponding sequence has been expired"),
                  FailureReason::kRejected);
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    for (size_t i = 0; i < lanes_[lane].slots.size(); ++i) {
      const Slot& slot = lanes_[lane].slots[i];
      if (!slot.used || !slot.queue.empty() || slot.in_flight) continue;
      // Nothing more will come while the model stops, and others wait.
      const int64_t until_ns = draining && !backlog_.empty() ? now_ns : slot.touched_ns + idle_ns_;
      if (until_ns <= now_ns) {
        free_slot({static_cast<int>(lane), i}, now_ns);
      } else {
        step.wait_until_ns = std::min(step.wait_until_ns, until_ns);
      }
    }
  }
  return step;
}

SequenceStep SequenceFormer::hang(int instance, int64_t now_ns, Status status) {
  Lane& lane = lanes_[static_cast<size_t>(instance)];
  lane.hung = true;
  std::vector<RequestPtr> refused;
  for (size_t i = 0; i < lane.slots.size(); ++i) {
    Slot& slot = lane.slots[i];
    refused.insert(refused.end(), slot.queue.begin(), slot.queue.end());
    slot.queue.clear();
    forget(slot.id, &slot);
    if (slot.in_flight) {
      slot.ends_early = true;
    } else {
      slot = {};
    }
  }
  return refuse(std::move(refused), now_ns, std::move(status), FailureReason::kBackend);
}

SequenceStep SequenceFormer::abandon(int64_t now_ns, Status status) {
  std::vector<RequestPtr> refused;
  for (Backlog& backlog : backlog_) refused.insert(refused.end(), backlog.queue.begin(), backlog.queue.end());
  backlog_.clear();
  open_backlog_.clear();
  for (Lane& lane : lanes_) {
    for (Slot& slot : lane.slots) {
      refused.insert(refused.end(), slot.queue.begin(), slot.queue.end());
      slot.queue.clear();
    }
  }
  return refuse(std::move(refused), now_ns, std::move(status), FailureReason::kRejected);
}

}  // namespace flywheel::schedule
