// SPDX-License-Identifier: Apache-2.0
// The engine's measured latency for each batch size, stored in it for the server's policies. Used by build.cc.
#pragma once

#include "compiler/lower/assemble.h"
#include "compiler/tune/timing_cache.h"

namespace flywheel {

// Fills plan.latency_curve for models whose inputs all begin with one and the same symbol: batch sizes 1, 2, 4 ... to
// the profile's maximum, other extents at opt. Times come from the cache where it has them for this machine,
// model and choice of kernels, and go there. Stops early
// when a batch takes long.
Status measure_latency_curve(lower::Assembled& assembled, const Machine& machine, int threads, uint64_t model_hash,
                             tune::TimingCache& cache);

}  // namespace flywheel
