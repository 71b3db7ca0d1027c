// SPDX-License-Identifier: Apache-2.0
// Family gemm: rows times a constant matrix (fully connected layers, projections of transformers).
//   acc[m,n] = sum over k of A[m,k] * (trans_b ? B[n,k] : B[k,n])
//   Y = program(acc, epilogue operands)
// Operands: inputs[0] A [M,K], innermost stride 1; inputs[1] B, constant, contiguous; inputs[2..] the epilogue's, each
// broadcasting to [M,N] (a bias is [N] or [1,N]); outputs[0] Y [M,N], innermost stride 1.
// ints: [trans_b]. The order of accumulation depends on K alone, so a row's result does not depend on M.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct GemmParams {
  int64_t m = 0, n = 0, k = 0;
  bool trans_b = false;
  static Result<GemmParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
