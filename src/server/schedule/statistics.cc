// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/statistics.h"

#include <algorithm>
#include <chrono>

namespace flywheel::schedule {
namespace {

template <size_t kBounds>
void observe(Histogram<kBounds>& histogram, const std::array<int64_t, kBounds>& bounds, int64_t value) {
  const auto bound = std::lower_bound(bounds.begin(), bounds.end(), value);
  ++histogram.counts[static_cast<size_t>(bound - bounds.begin())];
  ++histogram.count;
  histogram.sum += static_cast<double>(value);
}

// Nanoseconds rounded up, so that a bound in microseconds means what it says.
int64_t us_from_ns(int64_t ns) { return ns <= 0 ? 0 : (ns - 1) / 1000 + 1; }

int64_t since_receipt_ns(const Timeline& timeline, int64_t now_ns) {
  const int64_t begin = timeline.received_ns != 0 ? timeline.received_ns : timeline.queued_ns;
  return begin != 0 && now_ns > begin ? now_ns - begin : 0;
}

void merge(DurationCount& into, const DurationCount& from) {
  into.count += from.count;
  into.ns += from.ns;
}

template <size_t kSize>
void merge(std::array<uint64_t, kSize>& into, const std::array<uint64_t, kSize>& from) {
  for (size_t i = 0; i < kSize; ++i) into[i] += from[i];
}

template <size_t kBounds>
void merge(Histogram<kBounds>& into, const Histogram<kBounds>& from) {
  merge(into.counts, from.counts);
  into.count += from.count;
  into.sum += from.sum;
}

void merge(StatisticsSnapshot& into, const StatisticsSnapshot& from) {
  merge(into.success, from.success);
  merge(into.fail, from.fail);
  merge(into.failures, from.failures);
  merge(into.queue, from.queue);
  merge(into.compute_input, from.compute_input);
  merge(into.compute_infer, from.compute_infer);
  merge(into.compute_output, from.compute_output);
  merge(into.cache_hit, from.cache_hit);
  merge(into.cache_miss, from.cache_miss);
  into.inference_count += from.inference_count;
  into.execution_count += from.execution_count;
  into.last_inference_ms = std::max(into.last_inference_ms, from.last_inference_ms);
  for (const auto& [size, values] : from.by_batch_size) {
    BatchSizeStatistics& sum = into.by_batch_size[size];
    merge(sum.compute_input, values.compute_input);
    merge(sum.compute_infer, values.compute_infer);
    merge(sum.compute_output, values.compute_output);
  }
  merge(into.dispatches, from.dispatches);
  merge(into.batch_size, from.batch_size);
  merge(into.request_latency_us, from.request_latency_us);
  merge(into.queue_latency_us, from.queue_latency_us);
  merge(into.compute_latency_us, from.compute_latency_us);
}

void add_failure(StatisticsSnapshot& values, FailureReason reason, int64_t duration_ns) {
  values.fail.add(duration_ns);
  ++values.failures[static_cast<size_t>(reason)];
  observe(values.request_latency_us, kLatencyBoundsUs, us_from_ns(duration_ns));
}

int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string_view dispatch_reason_name(DispatchReason reason) {
  switch (reason) {
    case DispatchReason::kPreferredSize: return "preferred_size";
    case DispatchReason::kFull: return "full";
    case DispatchReason::kShapeChange: return "shape_change";
    case DispatchReason::kDelayElapsed: return "delay_elapsed";
    case DispatchReason::kNoDelay: return "no_delay";
    case DispatchReason::kDraining: return "draining";
  }
  return "unknown";
}

std::string_view failure_reason_name(FailureReason reason) {
  switch (reason) {
    case FailureReason::kRejected: return "REJECTED";
    case FailureReason::kCanceled: return "CANCELED";
    case FailureReason::kBackend: return "BACKEND";
    case FailureReason::kNone:
    case FailureReason::kOther: break;
  }
  return "OTHER";
}

ModelStatistics::ModelStatistics(size_t recorders) {
  for (size_t i = 0; i <= recorders; ++i) shards_.push_back(std::make_unique<Shard>());
}

void ModelStatistics::record_batch(size_t recorder, std::span<const RequestPtr> requests,
                                   std::span<const Status> statuses, DispatchReason reason, int64_t now_ns) {
  if (requests.empty()) return;
  Shard& shard = *shards_[std::min(recorder, shards_.size() - 1)];
  const int64_t wall_ms = wall_clock_ms();
  std::lock_guard lock(shard.mutex);
  StatisticsSnapshot& values = shard.values;
  int64_t rows = 0;
  bool any_success = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    const InferRequest& request = *requests[i];
    const Timeline& timeline = request.timeline;
    const int64_t duration_ns = since_receipt_ns(timeline, now_ns);
    rows += request.batch_size;
    observe(values.queue_latency_us, kLatencyBoundsUs, us_from_ns(timeline.queue_ns()));
    if (!statuses[i].is_ok()) {
      add_failure(values, FailureReason::kBackend, duration_ns);
      continue;
    }
    any_success = true;
    values.success.add(duration_ns);
    values.queue.add(timeline.queue_ns());
    values.compute_input.add(timeline.compute_input_ns());
    values.compute_infer.add(timeline.compute_infer_ns());
    values.compute_output.add(timeline.compute_output_ns());
    values.inference_count += static_cast<uint64_t>(request.batch_size);
    observe(values.request_latency_us, kLatencyBoundsUs, us_from_ns(duration_ns));
  }
  const Timeline& timeline = requests.front()->timeline;
  ++values.execution_count;
  ++values.dispatches[static_cast<size_t>(reason)];
  observe(values.batch_size, kBatchSizeBounds, rows);
  observe(values.compute_latency_us, kLatencyBoundsUs, us_from_ns(timeline.output_done_ns - timeline.batch_formed_ns));
  if (!any_success) return;
  values.last_inference_ms = wall_ms;
  BatchSizeStatistics& by_size = values.by_batch_size[rows];
  by_size.compute_input.add(timeline.compute_input_ns());
  by_size.compute_infer.add(timeline.compute_infer_ns());
  by_size.compute_output.add(timeline.compute_output_ns());
}

void ModelStatistics::record_failure(FailureReason reason, int64_t received_ns, int64_t now_ns) {
  Shard& shard = *shards_.back();
  std::lock_guard lock(shard.mutex);
  add_failure(shard.values, reason, received_ns != 0 && now_ns > received_ns ? now_ns - received_ns : 0);
}

void ModelStatistics::record_cache_hit(int64_t lookup_ns, int64_t received_ns, int64_t now_ns) {
  const int64_t wall_ms = wall_clock_ms();
  const int64_t duration_ns = received_ns != 0 && now_ns > received_ns ? now_ns - received_ns : 0;
  Shard& shard = *shards_.back();
  std::lock_guard lock(shard.mutex);
  shard.values.success.add(duration_ns);
  shard.values.cache_hit.add(lookup_ns);
  shard.values.last_inference_ms = wall_ms;
  observe(shard.values.request_latency_us, kLatencyBoundsUs, us_from_ns(duration_ns));
}

void ModelStatistics::record_cache_miss(int64_t cache_ns) {
  Shard& shard = *shards_.back();
  std::lock_guard lock(shard.mutex);
  shard.values.cache_miss.add(cache_ns);
}

StatisticsSnapshot ModelStatistics::snapshot() const {
  StatisticsSnapshot sum;
  for (const auto& shard : shards_) {
    std::lock_guard lock(shard->mutex);
    merge(sum, shard->values);
  }
  sum.pending_requests = pending_.load(std::memory_order_relaxed);
  sum.executing_batches = executing_.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace flywheel::schedule
