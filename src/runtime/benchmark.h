// SPDX-License-Identifier: Apache-2.0
// Measures an execution context: latencies of whole runs, and times of steps. Used by `flywheel bench`.
// Runs on the calling thread and the context's own; nothing is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flywheel/engine.h"

namespace flywheel::runtime {

struct BenchmarkOptions {
  double warmup_ms = 200;
  double duration_s = 3;  // runs start until this has passed
  int64_t min_runs = 10;  // and until there are so many
};

struct LatencySummary {
  double min = 0, mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// Percentiles by nearest rank: each is a latency that was measured. Sorts `latencies`. All zeros when it is empty.
LatencySummary summarize(std::vector<double>& latencies);

struct BenchmarkResult {
  double first_ms = 0;  // the first run, with the binding of the shape
  int64_t runs = 0;
  double seconds = 0;  // from the start of the first measured run to the end of the last
  LatencySummary latency_ms;
  double runs_per_s() const { return seconds > 0 ? static_cast<double>(runs) / seconds : 0; }
};

// The shapes are those set. Errors: those of run().
Result<BenchmarkResult> benchmark(ExecutionContext& context, std::span<const void* const> inputs,
                                  std::span<void* const> outputs, const BenchmarkOptions& options);

// The median time of each step in ms, in the engine's order. Reading the clock after each step makes short ones look
// longer.
Result<std::vector<double>> measure_steps(ExecutionContext& context, std::span<const void* const> inputs,
                                          std::span<void* const> outputs, const BenchmarkOptions& options);

}  // namespace flywheel::runtime
