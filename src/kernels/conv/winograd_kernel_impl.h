// SPDX-License-Identifier: Apache-2.0
// The Winograd transforms, the same text for every ISA: included by winograd_kernel_<isa>.cc alone.
// F(4x4) uses the points 0, 1, -1, 2, -2 and infinity, F(2x2) 0, 1, -1 and infinity; conv_winograd.cc has the matching
// weight transforms.
#pragma once

#include "kernels/conv/winograd_kernel.h"
#include "kernels/simd/vec.h"

#define FW_UNROLL _Pragma("GCC unroll 8")

namespace flywheel::kernels::FW_ISA {
namespace {

// One-dimensional transforms: T values at stride `from` into T (input) or M (output) values at stride `to`.
template <int M>
struct Points;

template <>
struct Points<2> {
  FW_INLINE void input(const Vf* d, int from, Vf* o, int to) {
    o[0] = d[0] - d[2 * from];
    o[to] = d[from] + d[2 * from];
    o[2 * to] = d[2 * from] - d[from];
    o[3 * to] = d[from] - d[3 * from];
  }
  FW_INLINE void output(const Vf* m, int from, Vf* o, int to) {
    o[0] = m[0] + m[from] + m[2 * from];
    o[to] = m[from] - m[2 * from] - m[3 * from];
  }
};

template <>
struct Points<4> {
  FW_INLINE void input(const Vf* d, int from, Vf* o, int to) {
    const Vf two = splat(2), four = splat(4), five = splat(5);
    const Vf d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from], d5 = d[5 * from];
    const Vf a = fnma(four, d2, d4), b = fnma(four, d1, d3), c = d4 - d2, e = two * (d3 - d1);
    o[0] = fma(four, d0, fnma(five, d2, d4));
    o[to] = a + b;
    o[2 * to] = a - b;
    o[3 * to] = c + e;
    o[4 * to] = c - e;
    o[5 * to] = fma(four, d1, fnma(five, d3, d5));
  }
  FW_INLINE void output(const Vf* m, int from, Vf* o, int to) {
    const Vf a = m[from] + m[2 * from], b = m[from] - m[2 * from];
    const Vf c = m[3 * from] + m[4 * from], d = m[3 * from] - m[4 * from];
    o[0] = m[0] + a + c;
    o[to] = fma(splat(2), d, b);
    o[2 * to] = fma(splat(4), c, a);
    o[3 * to] = fma(splat(8), d, b) + m[5 * from];
  }
};

template <int M>
void transform_input(const WinogradInput& t) noexcept {
  constexpr int T = M + 2;
  const bool whole = t.y0 == 0 && t.x0 == 0 && t.y1 == T && t.x1 == T;
  for (int64_t c = 0; c < t.channels; c += kLanes) {
    const bool full = t.channels - c >= kLanes;
    Vf pixels[T], half[T * T];
    FW_UNROLL for (int r = 0; r < T; ++r) {
      const float* row = t.x + r * t.row + c;
      if (whole && full) {
        FW_UNROLL for (int q = 0; q < T; ++q) pixels[q] = load(row + q * t.column);
      } else {
        const bool inside = r >= t.y0 && r < t.y1;
        FW_UNROLL for (int q = 0; q < T; ++q) {
          pixels[q] = splat(0);
          if (inside && q >= t.x0 && q < t.x1) {
            pixels[q] = full ? load(row + q * t.column) : load_first(row + q * t.column, t.channels - c);
          }
        }
      }
      Points<M>::input(pixels, 1, half + r * T, 1);
    }
    FW_UNROLL for (int q = 0; q < T; ++q) {
      Vf column[T];
      Points<M>::input(half + q, T, column, 1);
      FW_UNROLL for (int r = 0; r < T; ++r) store(t.v + (r * T + q) * t.position + c, column[r]);
    }
  }
}

template <int M>
void transform_output(const WinogradOutput& t) noexcept {
  constexpr int T = M + 2;
  const Vf low = splat(t.low), high = splat(t.high);
  for (int64_t k = 0; k < t.channels; k += kLanes) {
    const int64_t left = t.channels - k;
    const bool full = left >= kLanes;
    Vf half[M * T];
    FW_UNROLL for (int q = 0; q < T; ++q) {
      Vf column[T];
      FW_UNROLL for (int r = 0; r < T; ++r) column[r] = load(t.m + (r * T + q) * t.position + k);
      Points<M>::output(column, 1, half + q, T);
    }
    Vf bias = splat(0);
    if (t.bias != nullptr) bias = full ? load(t.bias + k) : load_first(t.bias + k, left);
    FW_UNROLL for (int r = 0; r < M; ++r) {
      if (r < t.rows) {
        Vf pixels[M];
        Points<M>::output(half + r * T, 1, pixels, 1);
        float* out = t.out + r * t.row + k;
        const float* residual = t.residual == nullptr ? nullptr : t.residual + r * t.residual_row + k;
        FW_UNROLL for (int q = 0; q < M; ++q) {
          if (q < t.columns) {
            Vf x = pixels[q] + bias;
            if (residual != nullptr) {
              const float* p = residual + q * t.residual_column;
              x = x + (full ? load(p) : load_first(p, left));
            }
            if (t.clamp) x = min(high, max(low, x));
            if (full) {
              store(out + q * t.column, x);
            } else {
              store_first(out + q * t.column, x, left);
            }
          }
        }
      }
    }
  }
}

}  // namespace

extern constinit const WinogradKernels kWinogradKernels{kLanes, transform_input<2>, transform_input<4>,
                                                        transform_output<2>, transform_output<4>};

}  // namespace flywheel::kernels::FW_ISA
