// SPDX-License-Identifier: Apache-2.0
// The tile kernels, the same text for every ISA: included by tile_kernel_<isa>.cc alone.
//
// AVX-512: 14 rows x 32 columns, 7 x 64 when there are few rows, 14 x 16 for narrow rests: at most 28 of the 32
// registers accumulate, the others hold B, and A is broadcast from memory inside the multiply-add. AVX2 and portable: 6
// rows x 2 vectors, 12 of 16 registers.
#pragma once

#include "kernels/gemm/tile_kernel.h"
#include "kernels/simd/vec.h"

#define FW_UNROLL _Pragma("GCC unroll 16")

namespace flywheel::kernels::FW_ISA {
namespace {

#if defined(FW_ISA_AVX512)

constexpr int kHalfRows = 7;

// Row r is addressed as base + {0, 1, 2, 4} x 1, {1, 2} x 3 or 1 x 5 row steps: three index registers serve seven rows.
struct RowStrides {
  explicit RowStrides(int64_t step) : one(4 * step), three(12 * step), five(20 * step) {}
  int64_t one, three, five;  // bytes
};

// The address is spelt out: left alone, GCC 12 keeps one spilled pointer for every row and step. Volatile keeps the
// order (the registers are counted to the last), and nothing in a kernel writes what these read, so no memory clobber
// is needed.
template <int D>
FW_INLINE void fma_broadcast(Vf& acc, Vf b, const float* p, const RowStrides& s, int r) {
#define FW_FMA(address, stride) \
  asm volatile("vfmadd231ps " address "%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(b.v), "r"(p), "r"(stride), "i"(D * 4))
  if (r == 0) {
    FW_FMA("%c4(%2)", int64_t{0});
  } else if (r == 1) {
    FW_FMA("%c4(%2,%3)", s.one);
  } else if (r == 2) {
    FW_FMA("%c4(%2,%3,2)", s.one);
  } else if (r == 3) {
    FW_FMA("%c4(%2,%3)", s.three);
  } else if (r == 4) {
    FW_FMA("%c4(%2,%3,4)", s.one);
  } else if (r == 5) {
    FW_FMA("%c4(%2,%3)", s.five);
  } else {
    FW_FMA("%c4(%2,%3,2)", s.three);
  }
#undef FW_FMA
}

// acc[r][v] += A[row r][D] * b[v]; rows kHalfRows and above are addressed from p1.
template <int R, int NV, int D>
FW_INLINE void multiply_add(Vf (&acc)[R][NV], const Vf (&b)[NV], const float* p0, const float* p1,
                            const RowStrides& strides) {
  FW_UNROLL for (int r = 0; r < R; ++r) {
    FW_UNROLL for (int v = 0; v < NV; ++v) {
      fma_broadcast<D>(acc[r][v], b[v], r < kHalfRows ? p0 : p1, strides, r % kHalfRows);
    }
  }
}

#else

constexpr int kHalfRows = 3;

struct RowStrides {
  explicit RowStrides(int64_t row_step) : step(row_step) {}
  int64_t step;
};

template <int R, int NV, int D>
FW_INLINE void multiply_add(Vf (&acc)[R][NV], const Vf (&b)[NV], const float* p0, const float* p1,
                            const RowStrides& strides) {
  FW_UNROLL for (int r = 0; r < R; ++r) {
    const float* base = r < kHalfRows ? p0 : p1;  // GCC 12 sanitizers miscompile (c ? p0 : p1)[i]
    const Vf a = splat(base[(r % kHalfRows) * strides.step + D]);
    FW_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = fma(a, b[v], acc[r][v]);
  }
}

#endif

template <int R, int NV, int D>
FW_INLINE void reduction_step(Vf (&acc)[R][NV], const float* p0, const float* p1, const float* b0, const float* b1,
                              const RowStrides& strides) {
  constexpr int kLine = (NV == 1 ? 1 : 2) * kLanes;
  Vf b[NV];
  FW_UNROLL for (int v = 0; v < NV; ++v) b[v] = load((v < 2 ? b0 : b1) + (v & 1) * kLanes + kLine * D);
  multiply_add<R, NV, D>(acc, b, p0, p1, strides);
}

// The epilogue of a tile whose last columns do not exist: rare, so it is small rather than fast. `rows` holds the
// accumulators.
static __attribute__((noinline)) void finish_partial(const TileArgs& t, const float* rows, int count,
                                                     int vectors) noexcept {
  const Vf low = splat(t.low), high = splat(t.high);
  for (int r = 0; r < count; ++r) {
    for (int v = 0; v < vectors; ++v) {
      const int left = t.columns - v * kLanes;
      if (left <= 0) break;
      const int n = left < kLanes ? left : kLanes;
      Vf x = load(rows + (r * vectors + v) * kLanes);
      if (t.bias != nullptr) x = x + load_first(t.bias + v * kLanes, n);
      if (t.residual != nullptr) x = x + load_first(t.residual + r * t.residual_step + v * kLanes, n);
      if (t.clamp) x = min(high, max(low, x));
      store_first(t.out + r * t.out_step + v * kLanes, x, n);
    }
  }
}

template <int R, int NV>
static void tile(const TileArgs& t) noexcept {
  constexpr int kLine = (NV == 1 ? 1 : 2) * kLanes;
  constexpr int kBases = R > kHalfRows ? 2 : 1;
  Vf acc[R][NV];
  FW_UNROLL for (int r = 0; r < R; ++r) { FW_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = splat(0); }
  const RowStrides strides(t.a_step);
  const int64_t step_floats = t.a_step;
  const float* b0 = t.b;
  const float* b1 = t.b + (NV > 2 ? t.panel_stride : 0);
  const char* ahead = t.prefetch;
  const int64_t ahead_lines = t.prefetch_lines;
  // Output lines are fetched two an iteration, so that they are there when the reduction ends and evict nothing early.
  int output_row = t.prefetch_output ? 0 : R;
  const float* a_outer = t.a;
  for (int64_t outer = t.outer; outer > 0; --outer, a_outer += t.a_outer, b0 += t.b_outer, b1 += t.b_outer) {
    const float* a_middle = a_outer;
    for (int64_t middle = t.middle; middle > 0; --middle, a_middle += t.a_middle, b0 += t.b_middle, b1 += t.b_middle) {
      const float* p0 = a_middle;
      const float* p1 = kBases > 1 ? p0 + kHalfRows * step_floats : p0;
      int64_t k = t.run;
      int64_t row_ahead = 0;
      for (; k >= 4; k -= 4) {
        for (int64_t i = 0; i < ahead_lines; ++i, ahead += 64) {
          __builtin_prefetch(ahead, 0, 2);
          if (NV > 2) __builtin_prefetch(ahead + t.panel_stride * static_cast<int64_t>(sizeof(float)), 0, 2);
        }
        if (R > 2) {
          // Two rows an iteration, so that every row's line after next is asked for once in a line's 16 floats.
          __builtin_prefetch(p0 + row_ahead + 32);
          __builtin_prefetch(p0 + row_ahead + step_floats + 32);
          if (kBases > 1) {
            __builtin_prefetch(p1 + row_ahead + 32);
            __builtin_prefetch(p1 + row_ahead + step_floats + 32);
          }
          row_ahead += 2 * step_floats;
          if (row_ahead > (kBases > 1 ? kHalfRows - 1 : R - 1) * step_floats) row_ahead = 0;
        }
        if (output_row < R) {
          FW_UNROLL for (int line = 0; line < (NV * kLanes + 15) / 16; ++line) {
            __builtin_prefetch(t.out + output_row * t.out_step + line * 16, 1);
            if (t.residual != nullptr) __builtin_prefetch(t.residual + output_row * t.residual_step + line * 16);
          }
          ++output_row;
        }
        reduction_step<R, NV, 0>(acc, p0, p1, b0, b1, strides);
        reduction_step<R, NV, 1>(acc, p0, p1, b0, b1, strides);
        reduction_step<R, NV, 2>(acc, p0, p1, b0, b1, strides);
        reduction_step<R, NV, 3>(acc, p0, p1, b0, b1, strides);
        p0 += 4;
        p1 += 4;
        b0 += 4 * kLine;
        b1 += 4 * kLine;
      }
      if (k & 2) {
        reduction_step<R, NV, 0>(acc, p0, p1, b0, b1, strides);
        reduction_step<R, NV, 1>(acc, p0, p1, b0, b1, strides);
        p0 += 2;
        p1 += 2;
        b0 += 2 * kLine;
        b1 += 2 * kLine;
      }
      if (k & 1) {
        reduction_step<R, NV, 0>(acc, p0, p1, b0, b1, strides);
        b0 += kLine;
        b1 += kLine;
      }
    }
  }
  float* out = t.out;
  if (t.columns == NV * kLanes) {
    if (t.bias != nullptr) {
      FW_UNROLL for (int v = 0; v < NV; ++v) {
        const Vf bias = load(t.bias + v * kLanes);
        FW_UNROLL for (int r = 0; r < R; ++r) acc[r][v] = acc[r][v] + bias;
      }
    }
    if (t.residual != nullptr) {
      const float* residual = t.residual;
      FW_UNROLL for (int r = 0; r < R; ++r, residual += t.residual_step) {
        FW_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = acc[r][v] + load(residual + v * kLanes);
      }
    }
    if (t.clamp) {
      const Vf low = splat(t.low), high = splat(t.high);
      FW_UNROLL for (int r = 0; r < R; ++r) {
        FW_UNROLL for (int v = 0; v < NV; ++v) acc[r][v] = min(high, max(low, acc[r][v]));
      }
    }
    FW_UNROLL for (int r = 0; r < R; ++r, out += t.out_step) {
      FW_UNROLL for (int v = 0; v < NV; ++v) store(out + v * kLanes, acc[r][v]);
    }
    return;
  }
  alignas(64) float rows[R * NV * kLanes];
  FW_UNROLL for (int r = 0; r < R; ++r) {
    FW_UNROLL for (int v = 0; v < NV; ++v) store(rows + (r * NV + v) * kLanes, acc[r][v]);
  }
  finish_partial(t, rows, R, NV);
}

#define FW_ROWS_2(nv) nullptr, tile<1, nv>, tile<2, nv>
#define FW_ROWS_6(nv) FW_ROWS_2(nv), tile<3, nv>, tile<4, nv>, tile<5, nv>, tile<6, nv>
#define FW_ROWS_7(nv) FW_ROWS_6(nv), tile<7, nv>
#define FW_ROWS_14(nv) \
  FW_ROWS_7(nv), tile<8, nv>, tile<9, nv>, tile<10, nv>, tile<11, nv>, tile<12, nv>, tile<13, nv>, tile<14, nv>

}  // namespace

#if defined(FW_ISA_AVX512)
extern constinit const TileKernels kTileKernels{14, 7, 2 * kLanes, {FW_ROWS_14(1)}, {FW_ROWS_14(2)}, {FW_ROWS_7(4)}};
#else
extern constinit const TileKernels kTileKernels{6, 2, 2 * kLanes, {FW_ROWS_6(1)}, {FW_ROWS_6(2)}, {FW_ROWS_2(4)}};
#endif

}  // namespace flywheel::kernels::FW_ISA
