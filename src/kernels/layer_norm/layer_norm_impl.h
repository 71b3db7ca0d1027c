// SPDX-License-Identifier: Apache-2.0
// The loop of layer_norm_isa.h; included by layer_norm_<isa>.cc alone. Mean first, then the squares of what differs
// from it: one pass for both would cancel where the mean is large. The order of summation depends on the length only.
#pragma once

#include "kernels/layer_norm/layer_norm_isa.h"
#include "kernels/simd/vector_math.h"

namespace flywheel::kernels::FW_ISA {

// Sum over a row of term(vector), where lanes beyond the row count as 0.
template <class Term>
FW_INLINE float sum_row(const float* x, int64_t n, Term term) {
  Vf s0 = splat(0.0F), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = s0 + term(load(x + i));
    s1 = s1 + term(load(x + i + kLanes));
    s2 = s2 + term(load(x + i + 2 * kLanes));
    s3 = s3 + term(load(x + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) s0 = s0 + term(load(x + i));
  if (i < n) s1 = s1 + select(lanes_below(n - i), term(load_first(x + i, n - i)), splat(0.0F));
  return sum_lanes((s0 + s1) + (s2 + s3));
}

void layer_norm_rows(const LayerNormRows& rows, const float* x, float* y) {
  const int64_t n = rows.length;
  const float count = static_cast<float>(n);
  for (int64_t r = 0; r < rows.count; ++r, x += n, y += n) {
    const float mean = rows.rms ? 0.0F : sum_row(x, n, [](Vf v) FW_LAMBDA { return v; }) / count;
    const Vf shift = splat(mean);
    const float variance = sum_row(x, n, [=](Vf v) FW_LAMBDA { return (v - shift) * (v - shift); }) / count;
    const Vf factor = splat(1.0F / __builtin_sqrtf(variance + rows.epsilon));
    auto normalized = [&](Vf v, Vf scale) FW_LAMBDA { return (v - shift) * factor * scale; };
    int64_t i = 0;
    if (rows.bias) {
      for (; i + kLanes <= n; i += kLanes) {
        store(y + i, normalized(load(x + i), load(rows.scale + i)) + load(rows.bias + i));
      }
      if (i < n) {
        const int64_t rest = n - i;
        store_first(
            y + i,
            normalized(load_first(x + i, rest), load_first(rows.scale + i, rest)) + load_first(rows.bias + i, rest),
            rest);
      }
    } else {
      for (; i + kLanes <= n; i += kLanes) store(y + i, normalized(load(x + i), load(rows.scale + i)));
      if (i < n) store_first(y + i, normalized(load_first(x + i, n - i), load_first(rows.scale + i, n - i)), n - i);
    }
  }
}

}  // namespace flywheel::kernels::FW_ISA
