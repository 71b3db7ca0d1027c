// SPDX-License-Identifier: Apache-2.0
#include "kernels/tile_program.h"

#include "kernels/tile_program_isa.h"

namespace flywheel::kernels {
namespace {

template <auto kRun>
void run(const Program& program, const TileOperand* operands, int64_t rows, int64_t columns, float* out,
         int64_t out_row_stride) {
  kRun({program.code.data(), static_cast<int64_t>(program.code.size()), program.inputs, program.result}, operands, rows,
       columns, out, out_row_stride);
}

}  // namespace

TileProgramFn tile_program(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return run<avx512::run_tile_program>;
  if (isa == Isa::kAvx2) return run<avx2::run_tile_program>;
#endif
  (void)isa;
  return run<portable::run_tile_program>;
}

}  // namespace flywheel::kernels
