// SPDX-License-Identifier: Apache-2.0
// What tile_program.cc calls in the sources of each ISA: a validated f32 program over a tile, with plain pointers only.
// Stateless; any thread.
#pragma once

#include "kernels/tile_program.h"

namespace flywheel::kernels {

struct TileCode {
  const Instruction* code;
  int64_t size;
  int inputs;
  int result;
};

#define FW_DECLARE_TILE_PROGRAM(isa)                                                                         \
  namespace isa {                                                                                            \
  void run_tile_program(const TileCode& program, const TileOperand* operands, int64_t rows, int64_t columns, \
                        float* out, int64_t out_row_stride);                                                 \
  }
FW_DECLARE_TILE_PROGRAM(avx512)
FW_DECLARE_TILE_PROGRAM(avx2)
FW_DECLARE_TILE_PROGRAM(portable)
#undef FW_DECLARE_TILE_PROGRAM

}  // namespace flywheel::kernels
