// SPDX-License-Identifier: Apache-2.0
// The vectors of the ISA that the including source is compiled for: each <kernel>_<isa>.cc defines one of these macros
// and includes <kernel>_impl.h, which includes this. See vec_avx512.h for the rules of such sources.
#pragma once

#if defined(FW_ISA_AVX512)
#include "kernels/simd/vec_avx512.h"
#elif defined(FW_ISA_AVX2)
#include "kernels/simd/vec_avx2.h"
#elif defined(FW_ISA_PORTABLE)
#include "kernels/simd/vec_portable.h"
#else
#error "define FW_ISA_AVX512, FW_ISA_AVX2 or FW_ISA_PORTABLE before including a kernel's implementation"
#endif
