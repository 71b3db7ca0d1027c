// SPDX-License-Identifier: Apache-2.0
// One window over all channels, the same text for every ISA: included by pool_window_<isa>.cc alone. Taps are taken row
// by row.
#pragma once

#include "kernels/pool/pool_window.h"
#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {
namespace {

struct Max {
  FW_INLINE Vf identity() { return splat(-__builtin_inff()); }
  FW_INLINE Vf add(Vf a, Vf x) { return max(a, x); }
};
struct Sum {
  FW_INLINE Vf identity() { return splat(0.0F); }
  FW_INLINE Vf add(Vf a, Vf x) { return a + x; }
};

template <class Fold, int kVectors>
FW_INLINE void fold_block(const PoolWindow& w, int64_t c, Vf* acc) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) acc[v] = Fold::identity();
  for (int64_t r = 0; r < w.rows; ++r) {
    const float* p = w.x + r * w.row_step + c;
    for (int64_t s = 0; s < w.columns; ++s, p += w.column_step) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[v] = Fold::add(acc[v], load(p + v * kLanes));
    }
  }
}

template <class Fold>
FW_INLINE void fold_window(const PoolWindow& w) {
  const Vf scale = splat(w.scale);
  int64_t c = 0;
  Vf acc[4];
  for (; c + 4 * kLanes <= w.channels; c += 4 * kLanes) {
    fold_block<Fold, 4>(w, c, acc);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) store(w.out + c + v * kLanes, acc[v] * scale);
  }
  for (; c + kLanes <= w.channels; c += kLanes) {
    fold_block<Fold, 1>(w, c, acc);
    store(w.out + c, acc[0] * scale);
  }
  if (c < w.channels) {
    const int64_t n = w.channels - c;
    Vf rest = Fold::identity();
    for (int64_t r = 0; r < w.rows; ++r) {
      for (int64_t s = 0; s < w.columns; ++s) {
        rest = Fold::add(rest, load_first(w.x + r * w.row_step + s * w.column_step + c, n));
      }
    }
    store_first(w.out + c, rest * scale, n);
  }
}

}  // namespace

void max_window(const PoolWindow& window) { fold_window<Max>(window); }
void average_window(const PoolWindow& window) { fold_window<Sum>(window); }

}  // namespace flywheel::kernels::FW_ISA
