// SPDX-License-Identifier: Apache-2.0
// Which input positions an output position is made of, and what resize_f32.cc calls in the sources of each ISA. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/resize/resize.h"

namespace flywheel::kernels {

// out = sum over t < count of weight[t] * in[index[t]]; indices are inside the image.
struct ResizeTaps {
  int count = 0;
  int64_t index[4] = {};
  float weight[4] = {};
};
std::vector<ResizeTaps> resize_taps(const ResizeParams& params, double scale, int64_t in_extent, int64_t out_extent);

// out[c] = sum over r, s of row_weight[r] * column_weight[s] * in(r, s)[c]: rows * columns pixels, row by row.
struct WeightedPixels {
  const float* pixel[16];
  float weight[16];
  int count;
  int64_t channels;
  float* out;
};

#define FW_DECLARE_RESIZE(isa)                     \
  namespace isa {                                  \
  void blend_pixels(const WeightedPixels& pixels); \
  }
FW_DECLARE_RESIZE(avx512)
FW_DECLARE_RESIZE(avx2)
FW_DECLARE_RESIZE(portable)
#undef FW_DECLARE_RESIZE

}  // namespace flywheel::kernels
