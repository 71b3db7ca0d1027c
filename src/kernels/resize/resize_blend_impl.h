// SPDX-License-Identifier: Apache-2.0
// A weighted sum of pixels over all channels, the same text for every ISA: included by resize_blend_<isa>.cc alone.
#pragma once

#include "kernels/resize/resize_taps.h"
#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {

void blend_pixels(const WeightedPixels& p) {
  int64_t c = 0;
  for (; c + kLanes <= p.channels; c += kLanes) {
    Vf sum = load(p.pixel[0] + c) * splat(p.weight[0]);
    for (int i = 1; i < p.count; ++i) sum = fma(load(p.pixel[i] + c), splat(p.weight[i]), sum);
    store(p.out + c, sum);
  }
  if (c < p.channels) {
    const int64_t n = p.channels - c;
    Vf sum = load_first(p.pixel[0] + c, n) * splat(p.weight[0]);
    for (int i = 1; i < p.count; ++i) sum = fma(load_first(p.pixel[i] + c, n), splat(p.weight[i]), sum);
    store_first(p.out + c, sum, n);
  }
}

}  // namespace flywheel::kernels::FW_ISA
