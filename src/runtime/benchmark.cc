// SPDX-License-Identifier: Apache-2.0
#include "runtime/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace flywheel::runtime {
namespace {

using Clock = std::chrono::steady_clock;
double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Calls run() until both the time has passed and the count is reached; `after(ms)` sees each run's latency.
template <class After>
Result<double> run_for(ExecutionContext& context, std::span<const void* const> inputs, std::span<void* const> outputs,
                       double duration_ms, int64_t min_runs, const After& after) {
  const Clock::time_point start = Clock::now();
  Clock::time_point before = start;
  for (int64_t runs = 0; runs < min_runs || ms_between(start, before) < duration_ms; ++runs) {
    FW_RETURN_IF_ERROR(context.run(inputs, outputs));
    const Clock::time_point now = Clock::now();
    after(ms_between(before, now));
    before = now;
  }
  return ms_between(start, before);
}

}  // namespace

LatencySummary summarize(std::vector<double>& latencies) {
  LatencySummary summary;
  if (latencies.empty()) return summary;
  std::sort(latencies.begin(), latencies.end());
  const double count = static_cast<double>(latencies.size());
  auto percentile = [&](double part) {
    const auto rank = static_cast<size_t>(std::ceil(part * count));
    return latencies[std::max<size_t>(rank, 1) - 1];
  };
  summary.min = latencies.front();
  summary.mean = std::accumulate(latencies.begin(), latencies.end(), 0.0) / count;
  summary.p50 = percentile(0.50);
  summary.p90 = percentile(0.90);
  summary.p95 = percentile(0.95);
  summary.p99 = percentile(0.99);
  summary.max = latencies.back();
  return summary;
}

Result<BenchmarkResult> benchmark(ExecutionContext& context, std::span<const void* const> inputs,
                                  std::span<void* const> outputs, const BenchmarkOptions& options) {
  BenchmarkResult result;
  const Clock::time_point start = Clock::now();
  FW_RETURN_IF_ERROR(context.run(inputs, outputs));
  result.first_ms = ms_between(start, Clock::now());
  FW_ASSIGN_OR_RETURN(double ms, run_for(context, inputs, outputs, options.warmup_ms, 0, [](double) {}));
  std::vector<double> latencies;
  latencies.reserve(1 << 16);
  FW_ASSIGN_OR_RETURN(
      ms, run_for(context, inputs, outputs, options.duration_s * 1e3, std::max<int64_t>(options.min_runs, 1),
                  [&](double latency) { latencies.push_back(latency); }));
  result.runs = static_cast<int64_t>(latencies.size());
  result.seconds = ms / 1e3;
  result.latency_ms = summarize(latencies);
  return result;
}

Result<std::vector<double>> measure_steps(ExecutionContext& context, std::span<const void* const> inputs,
                                          std::span<void* const> outputs, const BenchmarkOptions& options) {
  std::vector<std::vector<double>> times(context.engine().steps().size());
  FW_RETURN_IF_ERROR(run_for(context, inputs, outputs, options.warmup_ms, 1, [](double) {}).status());
  context.set_profiler([&](int step, double ms) { times[static_cast<size_t>(step)].push_back(ms); });
  const Status status =
      run_for(context, inputs, outputs, options.duration_s * 1e3, std::max<int64_t>(options.min_runs, 1), [](double) {
      }).status();
  context.set_profiler(nullptr);
  FW_RETURN_IF_ERROR(status);
  std::vector<double> medians;
  for (std::vector<double>& step : times) medians.push_back(summarize(step).p50);
  return medians;
}

}  // namespace flywheel::runtime
