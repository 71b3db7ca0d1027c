// SPDX-License-Identifier: Apache-2.0
// The loops of reduce over f32, compiled for each ISA. Stateless; any thread. The order of accumulation depends only on
// the extents that are reduced.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

enum class Accumulate : uint8_t { kSum, kAbsSum, kSquareSum, kExpSum, kProduct, kMax, kMin };

// The dims that are reduced, outermost first; strides in elements.
struct ReducedDims {
  int rank;  // >= 1
  int64_t extents[8];
  int64_t strides[8];
};

// For kExpSum the terms are e^(x - shift).
struct ReduceLoops {
  // One result; the innermost stride is 1.
  float (*row)(Accumulate how, const ReducedDims& dims, const float* x, float shift);
  // `columns` results for adjacent columns from x on; shifts has one value a column.
  void (*columns)(Accumulate how, const ReducedDims& dims, const float* x, int64_t columns, const float* shifts,
                  float* out);
  // The index of the largest of n values (of the smallest with `negate`), the first such or the last. NaN is passed
  // over.
  int64_t (*arg_row)(const float* x, int64_t n, bool negate, bool last);
  // The same for `columns` adjacent columns of n values that are `stride` apart.
  void (*arg_columns)(const float* x, int64_t n, int64_t stride, int64_t columns, bool negate, bool last, int64_t* out);
};

#define FW_DECLARE_REDUCE(isa)                                                                                        \
  namespace isa {                                                                                                     \
  float reduce_row(Accumulate how, const ReducedDims& dims, const float* x, float shift);                             \
  void reduce_columns(Accumulate how, const ReducedDims& dims, const float* x, int64_t columns, const float* shifts,  \
                      float* out);                                                                                    \
  int64_t arg_row(const float* x, int64_t n, bool negate, bool last);                                                 \
  void arg_columns(const float* x, int64_t n, int64_t stride, int64_t columns, bool negate, bool last, int64_t* out); \
  }
FW_DECLARE_REDUCE(avx512)
FW_DECLARE_REDUCE(avx2)
FW_DECLARE_REDUCE(portable)
#undef FW_DECLARE_REDUCE

}  // namespace flywheel::kernels
