// SPDX-License-Identifier: Apache-2.0
// The depthwise kernels, the same text for every ISA: included by depthwise_kernel_<isa>.cc alone.
#pragma once

#include "kernels/conv/depthwise_kernel.h"
#include "kernels/simd/vec.h"

#define FW_UNROLL _Pragma("GCC unroll 16")

namespace flywheel::kernels::FW_ISA {
namespace {

template <bool kPartial>
FW_INLINE Vf load_channels(const float* p, int lanes) {
  return kPartial ? load_first(p, lanes) : load(p);
}

template <int P, bool kPartial>
static void depthwise(const DepthwiseArgs& t) noexcept {
  Vf acc[P];
  FW_UNROLL for (int p = 0; p < P; ++p) acc[p] = splat(0);
  const int64_t step = t.x_step;
  const float* x_row = t.x;
  const float* w_row = t.w;
  for (int64_t y = t.taps_y; y > 0; --y, x_row += t.x_tap_y, w_row += t.w_tap_y) {
    const float* x = x_row;
    const float* w = w_row;
    const int8_t* inside = t.inside;
    for (int64_t i = t.taps_x; i > 0; --i, x += t.x_tap_x, w += t.w_tap_x, inside += 2) {
      const Vf weight = load(w);
      if (inside[0] == 0 && inside[1] == P) {
        FW_UNROLL for (int p = 0; p < P; ++p) {
          acc[p] = fma(load_channels<kPartial>(x + p * step, t.lanes), weight, acc[p]);
        }
      } else {
        FW_UNROLL for (int p = 0; p < P; ++p) {
          if (p >= inside[0] && p < inside[1]) {
            acc[p] = fma(load_channels<kPartial>(x + p * step, t.lanes), weight, acc[p]);
          }
        }
      }
    }
  }
  if (t.bias != nullptr) {
    const Vf bias = load_channels<kPartial>(t.bias, t.lanes);
    FW_UNROLL for (int p = 0; p < P; ++p) acc[p] = acc[p] + bias;
  }
  if (t.residual != nullptr) {
    FW_UNROLL for (int p = 0; p < P; ++p) {
      acc[p] = acc[p] + load_channels<kPartial>(t.residual + p * t.residual_step, t.lanes);
    }
  }
  if (t.clamp) {
    const Vf low = splat(t.low), high = splat(t.high);
    FW_UNROLL for (int p = 0; p < P; ++p) acc[p] = min(high, max(low, acc[p]));
  }
  FW_UNROLL for (int p = 0; p < P; ++p) {
    if (kPartial) {
      store_first(t.out + p * t.out_step, acc[p], t.lanes);
    } else {
      store(t.out + p * t.out_step, acc[p]);
    }
  }
}

#define FW_PIXELS(partial)                                                                             \
  nullptr, depthwise<1, partial>, depthwise<2, partial>, depthwise<3, partial>, depthwise<4, partial>, \
      depthwise<5, partial>, depthwise<6, partial>, depthwise<7, partial>, depthwise<8, partial>,      \
      depthwise<9, partial>, depthwise<10, partial>, depthwise<11, partial>, depthwise<12, partial>

}  // namespace

extern constinit const DepthwiseKernels kDepthwiseKernels{kLanes, {FW_PIXELS(false)}, {FW_PIXELS(true)}};

}  // namespace flywheel::kernels::FW_ISA
