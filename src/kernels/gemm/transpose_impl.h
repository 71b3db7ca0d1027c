// SPDX-License-Identifier: Apache-2.0
// The transposition, the same text for every ISA: included by transpose_<isa>.cc alone.
#pragma once

#include "kernels/gemm/transpose.h"
#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {
namespace {

void transpose(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out,
               int64_t out_stride) noexcept {
  const int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int64_t c = 0; c < whole_columns; c += kLanes) {
    for (int64_t r = 0; r < whole_rows; r += kLanes) {
      transpose_block(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  }
  for (int64_t c = whole_columns; c < columns; ++c) {
    for (int64_t r = 0; r < whole_rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = whole_rows; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

}  // namespace

extern const TransposeFn kTranspose = transpose;

}  // namespace flywheel::kernels::FW_ISA
