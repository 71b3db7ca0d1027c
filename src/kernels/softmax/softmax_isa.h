// SPDX-License-Identifier: Apache-2.0
// The loops of softmax, compiled for each ISA. Stateless; any thread; y may be x.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"

namespace flywheel::kernels {

struct SoftmaxLoops {
  // `rows` rows of `length` adjacent floats.
  void (*rows)(const float* x, float* y, int64_t rows, int64_t length, bool log);
  // `columns` adjacent columns of `length` floats that are `stride` apart.
  void (*columns)(const float* x, float* y, int64_t length, int64_t stride, int64_t columns, bool log);
};

#define FW_DECLARE_SOFTMAX(isa)                                                                              \
  namespace isa {                                                                                            \
  void softmax_rows(const float* x, float* y, int64_t rows, int64_t length, bool log);                       \
  void softmax_columns(const float* x, float* y, int64_t length, int64_t stride, int64_t columns, bool log); \
  }
FW_DECLARE_SOFTMAX(avx512)
FW_DECLARE_SOFTMAX(avx2)
FW_DECLARE_SOFTMAX(portable)
#undef FW_DECLARE_SOFTMAX

}  // namespace flywheel::kernels
