// SPDX-License-Identifier: Apache-2.0
// What is counted about one version of one model. The scheduler records, once for each batch or refusal; the protocols
// take snapshots and print them as /stats and /metrics. Threads: every recorder has a shard of its own, so recording
// never waits for another instance, only for a snapshot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "server/schedule/request.h"

namespace flywheel::schedule {

struct DurationCount {
  uint64_t count = 0;
  uint64_t ns = 0;

  void add(int64_t duration_ns, uint64_t times = 1) {
    count += times;
    ns += static_cast<uint64_t>(duration_ns > 0 ? duration_ns : 0);
  }
};

// Cumulative buckets are the printer's business: counts[i] holds values v with bounds[i-1] < v <= bounds[i]; the last
// entry of counts holds the rest.
template <size_t kBounds>
struct Histogram {
  std::array<uint64_t, kBounds + 1> counts{};
  uint64_t count = 0;
  double sum = 0;
};

inline constexpr std::array<int64_t, 11> kBatchSizeBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
inline constexpr std::array<int64_t, 19> kLatencyBoundsUs = {100,    200,     500,     1000,    2000,    3000,   5000,
                                                             7500,   10000,   15000,   25000,   50000,   100000, 250000,
                                                             500000, 1000000, 2500000, 5000000, 10000000};

// Why a batch left the queue when it did.
enum class DispatchReason : uint8_t { kPreferredSize, kFull, kShapeChange, kDelayElapsed, kNoDelay, kDraining };
inline constexpr size_t kDispatchReasons = 6;
std::string_view dispatch_reason_name(DispatchReason reason);
// "REJECTED", "CANCELED", "BACKEND", "OTHER".
std::string_view failure_reason_name(FailureReason reason);

struct BatchSizeStatistics {
  DurationCount compute_input;
  DurationCount compute_infer;
  DurationCount compute_output;
};

struct StatisticsSnapshot {
  // Requests, with their time from receipt to answer.
  DurationCount success;
  DurationCount fail;
  std::array<uint64_t, 5> failures{};  // by FailureReason
  // Of successful requests: each request's own queue time, and its batch's compute times.
  DurationCount queue;
  DurationCount compute_input;
  DurationCount compute_infer;
  DurationCount compute_output;
  DurationCount cache_hit;        // requests answered from the response cache, with the time of the lookup
  DurationCount cache_miss;       // requests that were not, with the time of lookup and insertion
  uint64_t inference_count = 0;   // rows of successful requests
  uint64_t execution_count = 0;   // batches executed
  int64_t last_inference_ms = 0;  // wall clock, since 1970
  std::map<int64_t, BatchSizeStatistics> by_batch_size;  // of successful batches
  std::array<uint64_t, kDispatchReasons> dispatches{};   // by DispatchReason
  Histogram<kBatchSizeBounds.size()> batch_size;
  Histogram<kLatencyBoundsUs.size()> request_latency_us;
  Histogram<kLatencyBoundsUs.size()> queue_latency_us;
  Histogram<kLatencyBoundsUs.size()> compute_latency_us;  // of batches: input, infer and output together
  int64_t pending_requests = 0;                           // waiting to be executed, now
  int64_t executing_batches = 0;                          // now
};

class ModelStatistics {
 public:
  // `recorders`: how many threads record often; each names its shard, and all others share the last one.
  explicit ModelStatistics(size_t recorders);

  // An executed batch: `requests` and `statuses` side by side. Times come from the requests' timelines.
  void record_batch(size_t recorder, std::span<const RequestPtr> requests, std::span<const Status> statuses,
                    DispatchReason reason, int64_t now_ns);
  // A request that was answered without being executed, or outside of the scheduler (malformed, for instance).
  void record_failure(FailureReason reason, int64_t received_ns, int64_t now_ns);

  // A request that the response cache answered: a success that was neither queued nor executed.
  void record_cache_hit(int64_t lookup_ns, int64_t received_ns, int64_t now_ns);
  void record_cache_miss(int64_t cache_ns);

  void add_pending(int64_t delta) { pending_.fetch_add(delta, std::memory_order_relaxed); }
  void add_executing(int64_t delta) { executing_.fetch_add(delta, std::memory_order_relaxed); }

  StatisticsSnapshot snapshot() const;

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    StatisticsSnapshot values;
  };
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<int64_t> pending_{0};
  std::atomic<int64_t> executing_{0};
};

}  // namespace flywheel::schedule
