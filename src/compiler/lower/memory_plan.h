// SPDX-License-Identifier: Apache-2.0
// Gives each arena storage an offset so that storages whose lifetimes overlap do not overlap in memory.
#pragma once

#include <memory>
#include <vector>

#include "compiler/lower/lower.h"

namespace flywheel::lower {

// Fills lifetimes from the steps, sizes from the symbols' values at the profile's maximum, then offsets: largest first,
// each at the lowest free place. Returns the arena's size. kInvalidArgument when a size overflows.
Result<uint64_t> plan_memory(LoweredGraph& lowered, const std::map<std::string, int64_t, std::less<>>& max_symbols);

}  // namespace flywheel::lower
