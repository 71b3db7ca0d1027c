// SPDX-License-Identifier: Apache-2.0
// Runs an f32 Program over a tile of rows and columns: the epilogue of contractions and the inside of pointwise
// kernels. The caller picks tiles that stay in L1. No allocation; any thread.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"
#include "kernels/program.h"

namespace flywheel::kernels {

// One program input over the tile: element (r, c) is data[r * row_stride + c * col_stride]; strides in floats, 0
// broadcasts. col_stride 1 is the fast case.
struct TileOperand {
  const float* data;
  int64_t row_stride;
  int64_t col_stride;
};

// out[r * out_row_stride + c] = program at (r, c). `out` may be the data of an operand with the same strides. Results
// for an element do not depend on the tile's extent or the element's place in it.
using TileProgramFn = void (*)(const Program& program, const TileOperand* operands, int64_t rows, int64_t columns,
                               float* out, int64_t out_row_stride);
TileProgramFn tile_program(Isa isa);  // REQUIRES: the machine has `isa`

}  // namespace flywheel::kernels
