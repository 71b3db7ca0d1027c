// SPDX-License-Identifier: Apache-2.0
// The loops of recurrent, compiled for each ISA. Stateless; any thread.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

inline constexpr int64_t kRecurrentBlock = 16;  // units side by side in packed weights
inline constexpr int kRecurrentRows = 4;        // of the batch at a time

struct RecurrentLoops {
  // For units [16 * first, 16 * last) of each gate: out[row][gate * stride + unit] += sum over k of
  // h[row][k] * packed[block][k][gate][unit]. `rows` is 1 or kRecurrentRows.
  void (*accumulate)(const float* packed, int gates, int64_t hidden, int64_t first, int64_t last, const float* const* h,
                     float* const* out, int64_t stride, int rows);
  void (*sigmoid)(float* x, int64_t count);
  void (*tanh)(float* x, int64_t count);
};

#define FW_DECLARE_RECURRENT(isa)              \
  namespace isa {                              \
  extern const RecurrentLoops recurrent_loops; \
  }
FW_DECLARE_RECURRENT(avx512)
FW_DECLARE_RECURRENT(avx2)
FW_DECLARE_RECURRENT(portable)
#undef FW_DECLARE_RECURRENT

}  // namespace flywheel::kernels
