// SPDX-License-Identifier: Apache-2.0
// The largest value that an expression can take while its symbols stay in their ranges. Memory is planned by it: an
// extent such as 10 - n is largest where n is smallest. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tensor/dim_expr.h"

namespace flywheel {

using SymbolValues = std::map<std::string, int64_t, std::less<>>;

// At least the largest value, and exactly it where no symbol occurs twice with opposite effect: parts are bounded each
// for itself. nullopt where a bound overflows, a divisor may be 0 or a symbol has no range.
std::optional<int64_t> largest_value(const DimExpr& expr, const SymbolValues& min, const SymbolValues& max);

}  // namespace flywheel
