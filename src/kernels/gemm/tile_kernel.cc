// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/tile_kernel.h"

namespace flywheel::kernels {

namespace avx512 {
extern const TileKernels kTileKernels;
}
namespace avx2 {
extern const TileKernels kTileKernels;
}
namespace portable {
extern const TileKernels kTileKernels;
}

const TileKernels& tile_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::kTileKernels;
  if (isa == Isa::kAvx2) return avx2::kTileKernels;
#endif
  (void)isa;
  return portable::kTileKernels;
}

}  // namespace flywheel::kernels
