// SPDX-License-Identifier: Apache-2.0
// Family cumulative: running sums along an axis. Y[j] = sum of X[i] for i <= j; exclusive: i < j; reverse: from the
// end. Operands, contiguous: inputs[0] X, f16, bf16, f32, f64 or integers; outputs[0] Y like X. ints: [axis, exclusive,
// reverse]. Floats are summed as doubles in the order of the axis and rounded once an element; integers wrap around.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct CumulativeParams {
  bool exclusive = false, reverse = false;
  int64_t outer = 1, extent = 1, inner = 1;  // dims before the axis, of the axis, behind it
  static Result<CumulativeParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
