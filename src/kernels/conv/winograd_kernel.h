// SPDX-License-Identifier: Apache-2.0
// The transforms of Winograd convolution F(m x m, 3 x 3), m = 2 or 4: input tiles of (m+2)^2 pixels into as many
// matrices, and their products with the transformed weights back into m x m outputs. Vectorized over channels. Pure
// functions over memory; any thread. Called by conv/conv_winograd.cc; conv/winograd_kernel_<isa>.cc defines them.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"

namespace flywheel::kernels {

// Strides and steps count floats.
struct WinogradInput {
  const float* x;  // the tile's first pixel, even where that lies outside the input
  int64_t row, column;
  int32_t y0, y1, x0, x1;  // the tile's rows and columns that are inside; others count as zero
  int64_t channels;
  float* v;  // position p, channel c: v[p * position + c], written up to a whole number of vectors
  int64_t position;
};

struct WinogradOutput {
  const float* m;  // position p, channel k: m[p * position + k]
  int64_t position;
  int64_t channels;
  float* out;
  int64_t row, column;
  int32_t rows, columns;  // outputs that exist, at most m
  const float* bias;      // or null
  const float* residual;  // or null
  int64_t residual_row, residual_column;
  bool clamp;
  float low, high;
};

struct WinogradKernels {
  int lanes;
  void (*input2)(const WinogradInput& args) noexcept;
  void (*input4)(const WinogradInput& args) noexcept;
  void (*output2)(const WinogradOutput& args) noexcept;
  void (*output4)(const WinogradOutput& args) noexcept;
};

const WinogradKernels& winograd_kernels(Isa isa);  // REQUIRES: the machine has `isa` (to run them)

}  // namespace flywheel::kernels
