// SPDX-License-Identifier: Apache-2.0
// Family softmax: Y = exp(X - max) / sum along one axis; with log: X - max - log(sum).
// Operands: inputs[0] X, outputs[0] Y, same dims, contiguous, f32 (reference: also f64). ints: [axis, log], 0 <= axis <
// rank.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct SoftmaxParams {
  int64_t outer = 0, length = 0, inner = 0;  // X as [outer, length, inner]
  bool log = false;
  static Result<SoftmaxParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
