// SPDX-License-Identifier: Apache-2.0
// The loops of softmax_isa.h; included by softmax_<isa>.cc alone. The order of summation depends on the length only.
#pragma once

#include "kernels/simd/vector_math.h"
#include "kernels/softmax/softmax_isa.h"

namespace flywheel::kernels::FW_ISA {

static inline float row_max(const float* x, int64_t n) {
  const Vf low = splat(-INFINITY);
  Vf m0 = low, m1 = low, m2 = low, m3 = low;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    m0 = max(m0, load(x + i));
    m1 = max(m1, load(x + i + kLanes));
    m2 = max(m2, load(x + i + 2 * kLanes));
    m3 = max(m3, load(x + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) m0 = max(m0, load(x + i));
  if (i < n) m1 = max(m1, select(lanes_below(n - i), load_first(x + i, n - i), low));
  return max_lanes(max(max(m0, m1), max(m2, m3)));
}

// Sum of e^(x - m); the terms go to y unless it is null.
static inline float row_exp_sum(const float* x, float m, float* y, int64_t n) {
  const Vf shift = splat(m);
  Vf s0 = splat(0.0F), s1 = s0;
  auto term = [&](int64_t i) FW_LAMBDA {
    const Vf e = exp_nonpositive(load(x + i) - shift);
    if (y) store(y + i, e);
    return e;
  };
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s0 = s0 + term(i);
    s1 = s1 + term(i + kLanes);
  }
  if (i + kLanes <= n) {
    s0 = s0 + term(i);
    i += kLanes;
  }
  if (i < n) {
    const Vf e = exp_nonpositive(load_first(x + i, n - i) - shift);
    if (y) store_first(y + i, e, n - i);
    s1 = s1 + select(lanes_below(n - i), e, splat(0.0F));
  }
  return sum_lanes(s0 + s1);
}

// y = a * factor - shift.
static inline void row_affine(const float* a, float factor, float shift, float* y, int64_t n) {
  const Vf f = splat(factor), s = splat(shift);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(a + i) * f - s);
  if (i < n) store_first(y + i, load_first(a + i, n - i) * f - s, n - i);
}

static inline float log_of(float x) {
  float lanes[kLanes];
  store(lanes, log(splat(x)));
  return lanes[0];
}

void softmax_rows(const float* x, float* y, int64_t rows, int64_t length, bool log) {
  for (int64_t r = 0; r < rows; ++r, x += length, y += length) {
    const float m = row_max(x, length);
    if (log) {
      const float sum = row_exp_sum(x, m, nullptr, length);
      // (x - m) - log(sum), in two steps so that a large m does not swallow the logarithm.
      row_affine(x, 1.0F, m, y, length);
      row_affine(y, 1.0F, log_of(sum), y, length);
    } else {
      const float sum = row_exp_sum(x, m, y, length);
      row_affine(y, 1.0F / sum, 0.0F, y, length);
    }
  }
}

// kVectors adjacent vectors of columns; with kMasked the one vector has `rest` lanes. Each column is summed from its
// top.
template <int kVectors, bool kMasked>
static inline void columns_of_vectors(const float* x, float* y, int64_t length, int64_t stride, int64_t rest,
                                      bool is_log) {
  auto get = [=](const float* p) FW_LAMBDA { return kMasked ? load_first(p, rest) : load(p); };
  auto put = [=](float* p, Vf v) FW_LAMBDA {
    if constexpr (kMasked) {
      store_first(p, v, rest);
    } else {
      store(p, v);
    }
  };
  Vf m[kVectors], sum[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    m[j] = splat(-INFINITY);
    sum[j] = splat(0.0F);
  }
  for (int64_t l = 0; l < length; ++l) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) m[j] = max(m[j], get(x + l * stride + j * kLanes));
  }
  for (int64_t l = 0; l < length; ++l) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vf e = exp_nonpositive(get(x + l * stride + j * kLanes) - m[j]);
      sum[j] = sum[j] + e;
      if (!is_log) put(y + l * stride + j * kLanes, e);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) sum[j] = is_log ? log(sum[j]) : splat(1.0F) / sum[j];
  for (int64_t l = 0; l < length; ++l) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const int64_t at = l * stride + j * kLanes;
      put(y + at, is_log ? (get(x + at) - m[j]) - sum[j] : get(y + at) * sum[j]);
    }
  }
}

void softmax_columns(const float* x, float* y, int64_t length, int64_t stride, int64_t columns, bool log) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    columns_of_vectors<4, false>(x + c, y + c, length, stride, kLanes, log);
  }
  for (; c + kLanes <= columns; c += kLanes) columns_of_vectors<1, false>(x + c, y + c, length, stride, kLanes, log);
  if (c < columns) columns_of_vectors<1, true>(x + c, y + c, length, stride, columns - c, log);
}

}  // namespace flywheel::kernels::FW_ISA
