// SPDX-License-Identifier: Apache-2.0
// The register-tile micro-kernels under every f32 contraction (gemm, conv, conv_transpose, matmul): a few rows of A
// times a packed panel of B, accumulated in registers over the whole reduction, finished in registers and stored.
//
// Each output element is one chain of fused multiply-adds in the order of the reduction, starting from zero, whichever
// kernel of an ISA computes it: that is what makes results independent of the tile a row falls into.
// Pure functions over memory; any thread. Called by gemm/implicit_gemm.cc, conv/conv_winograd.cc and matmul.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"

namespace flywheel::kernels {

// All strides and steps count floats. The reduction is outer x middle runs of `run` consecutive floats of every row:
// a convolution's kernel rows, kernel columns and channels. B holds one line of the panel's width for each step.
struct TileArgs {
  const float* a;
  int64_t a_step;  // from row to row
  int64_t outer, middle, run;
  int64_t a_outer, a_middle;  // from one outer (middle) index to the next
  const float* b;             // 64-byte aligned
  int64_t b_outer, b_middle;  // skipped in B after each outer (middle) index, beyond what was read
  int64_t panel_stride;       // wide kernels: from the first panel to the second

  float* out;
  int64_t out_step;
  int32_t columns;  // valid columns; only these are stored
  bool clamp;       // to [low, high], last
  float low, high;
  const float* bias;      // one for each column, or null
  const float* residual;  // added after the bias, or null; shaped like out
  int64_t residual_step;

  const char* prefetch;  // fetched into L2 as the reduction goes: `prefetch_lines` 64-byte lines every 4 steps
  int64_t prefetch_lines;
  bool prefetch_output;  // fetch the lines of out and residual as the reduction goes
};

using TileFn = void (*)(const TileArgs& args) noexcept;

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxWideRows = 7;

// Indexed by the number of rows; entry 0 and those above the ISA's limits are null.
struct TileKernels {
  int max_rows;   // of narrow and full
  int wide_rows;  // of wide; 0: none
  int panel;      // columns of a full panel; a narrow one, used for what is left at the end, has half
  TileFn narrow[kMaxTileRows + 1];
  TileFn full[kMaxTileRows + 1];
  TileFn wide[kMaxWideRows + 1];  // two full panels at once: enough accumulators for few rows
};

const TileKernels& tile_kernels(Isa isa);  // REQUIRES: the machine has `isa` (to run them)

}  // namespace flywheel::kernels
