// SPDX-License-Identifier: Apache-2.0
// Slice's starts and ends worked out: lowering takes views from them.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::ops {

// One for each dim of the operand: elements start, start + step, ... , `extent` of them. Untouched dims: 0, 1, the
// whole dim.
struct SliceRange {
  DimExpr start;
  int64_t step = 1;
  DimExpr extent;
};
// Where the sign of a symbolic bound, or whether it lies inside, cannot be proved, that is assumed
// (Graph::assumptions).
Result<std::vector<SliceRange>> slice_ranges(const ir::Node& slice);

}  // namespace flywheel::ops
