// SPDX-License-Identifier: Apache-2.0
// Family matmul: batched product of two computed matrices.
//   acc[b...,m,n] = sum over k of A[b...,m,k] * B[b...,k,n];  Y = program(acc, epilogue operands)
// Operands: inputs[0] A [...,M,K], inputs[1] B [...,K,N] with equal rank >= 2; batch dims are equal or 1 (broadcast,
// stride 0 is then implied). All strides are free: a transposed operand is a view. inputs[2..] the epilogue's;
// outputs[0] Y [...,M,N] with innermost stride 1. No ints.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct MatMulParams {
  int64_t m = 0, n = 0, k = 0;
  Dims batch;  // of the output
  static Result<MatMulParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
