// SPDX-License-Identifier: Apache-2.0
// Gives each arena storage an offset so that storages whose lifetimes overlap do not overlap in memory.
#pragma once

#include <memory>
#include <vector>

#include "compiler/lower/lower.h"
#include "tensor/dim_range.h"

namespace flywheel::lower {

// Fills lifetimes from the steps, sizes from the largest that they can be in the profile, then offsets: largest first,
// each at the lowest free place. Returns the arena's size. kInvalidArgument when a size overflows.
Result<uint64_t> plan_memory(LoweredGraph& lowered, const SymbolValues& min, const SymbolValues& max);

}  // namespace flywheel::lower
