// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/transpose.h"

namespace flywheel::kernels {

namespace avx512 {
extern const TransposeFn kTranspose;
}
namespace avx2 {
extern const TransposeFn kTranspose;
}
namespace portable {
extern const TransposeFn kTranspose;
}

TransposeFn transpose_kernel(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::kTranspose;
  if (isa == Isa::kAvx2) return avx2::kTranspose;
#endif
  (void)isa;
  return portable::kTranspose;
}

}  // namespace flywheel::kernels
