// SPDX-License-Identifier: Apache-2.0
// Family top_k: the k largest (or smallest) elements of each line along an axis, in order, and where they were. Equal
// ones come in the order of their places; a NaN is larger than every number.
// Operands, all contiguous: inputs[0] X of any type but bool; outputs[0] values, X's type, with k in place of the axis'
// extent; outputs[1] places, i64, like the values. ints: [axis, largest].
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct TopKParams {
  int64_t axis = 0;
  bool largest = true;
  int64_t k = 0, outer = 1, extent = 1, inner = 1;  // dims before the axis, of the axis, behind it
  static Result<TopKParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
