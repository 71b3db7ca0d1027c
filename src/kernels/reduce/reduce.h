// SPDX-License-Identifier: Apache-2.0
// Family reduce: reduces the listed axes of X, which may have any strides.
// Operands: inputs[0] X; outputs[0] Y, contiguous, with the reduced axes kept as 1 or removed. f32, f64, i32, i64
// (ArgMax/ArgMin give i64 and take one axis). ints: [kind, keep_dims, select_last_index, axis...], axes ascending and
// in range. A reduction over no element gives the identity (0, 1, or -/+ infinity as kind says).
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class ReduceKind : int64_t {
  kSum = 0,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,
  kL2,
  kSumSquare,
  kLogSum,
  kLogSumExp,
  kArgMax,
  kArgMin
};

struct ReduceParams {
  ReduceKind kind = ReduceKind::kSum;
  bool keep_dims = true, select_last_index = false;
  std::vector<int64_t> axes;
  static Result<ReduceParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
