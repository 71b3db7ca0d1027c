// SPDX-License-Identifier: Apache-2.0
// Family gather. kind 0, Gather: Y = data taken at indices along axis: dims data[:axis] + indices + data[axis+1:].
// kind 1, GatherElements: Y[i...] = data[.., indices[i...], ..]. kind 2, GatherND with batch_dims.
// Operands: inputs[0] data, any type and strides (innermost 1 for kind 0); inputs[1] indices, i32 or i64, contiguous;
// outputs[0] Y contiguous except that kind 0 may have any strides with innermost 1. Negative indices count from the
// end; an index out of range sets Fault kIndexOutOfRange and gives zeros. ints: [kind, axis, batch_dims].
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class GatherKind : int64_t { kGather = 0, kElements = 1, kNd = 2 };

struct GatherParams {
  GatherKind kind = GatherKind::kGather;
  int64_t axis = 0, batch_dims = 0;
  static Result<GatherParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
