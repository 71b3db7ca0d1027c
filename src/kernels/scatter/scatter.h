// SPDX-License-Identifier: Apache-2.0
// Family scatter: Y = data, then for every update in row-major order Y[target] = reduce(Y[target], update).
// kind 0, ScatterElements: the target of updates[i...] is [.., indices[i...], ..] along axis. kind 1, ScatterND: the
// target of updates[i..., :] is the slice data[indices[i..., 0], indices[i..., 1], ...].
// Operands, all contiguous: inputs[0] data, inputs[1] indices, i32 or i64, inputs[2] updates of data's type; outputs[0]
// Y like data. Negative indices count from the end; an index out of range sets Fault kIndexOutOfRange and its update
// is left out. ints: [kind, axis, reduction].
// Exact: sums and products of floats are rounded to the type after each update, in the order of the updates.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class ScatterKind : int64_t { kElements = 0, kNd = 1 };
enum class ScatterReduction : int64_t { kNone = 0, kAdd = 1, kMul = 2, kMax = 3, kMin = 4 };

struct ScatterParams {
  ScatterKind kind = ScatterKind::kElements;
  int64_t axis = 0;
  ScatterReduction reduction = ScatterReduction::kNone;
  static Result<ScatterParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
