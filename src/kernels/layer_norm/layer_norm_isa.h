// SPDX-License-Identifier: Apache-2.0
// The loop of layer_norm, compiled for each ISA. Stateless; any thread; y may be x.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

struct LayerNormRows {
  int64_t count, length;
  const float *scale, *bias;  // of `length`; bias may be null
  float epsilon;
  bool rms;
};
using LayerNormFn = void (*)(const LayerNormRows& rows, const float* x, float* y);

namespace avx512 {
void layer_norm_rows(const LayerNormRows& rows, const float* x, float* y);
}
namespace avx2 {
void layer_norm_rows(const LayerNormRows& rows, const float* x, float* y);
}
namespace portable {
void layer_norm_rows(const LayerNormRows& rows, const float* x, float* y);
}

}  // namespace flywheel::kernels
