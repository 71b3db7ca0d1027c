// SPDX-License-Identifier: Apache-2.0
// The plan as a FlatBuffers table (engine.fbs) and back, for engine_file.cc; and its check, which everything passes
// that the runtime runs, from a file or straight from the compiler. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/plan.h"

namespace flywheel::engine {

std::vector<std::byte> encode_plan(const Plan& plan);
// kCorrupt when the bytes are not a well-formed table, or when parts of it are shared so often that the plan would take
// many times their memory. The content is checked by check_plan().
Result<Plan> decode_plan(std::span<const std::byte> bytes);

// Everything that the runtime relies on: indices in range, expressions well formed, tactics known and of the step's
// family, programs valid, extents within arena and weights, inputs and outputs as declared, the latency curve finite
// and by ascending batch size. kCorrupt, or kIncompatible for an unknown tactic.
Status check_plan(const Plan& plan, uint64_t weights_bytes);

}  // namespace flywheel::engine
