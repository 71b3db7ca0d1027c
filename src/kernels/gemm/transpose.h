// SPDX-License-Identifier: Apache-2.0
// Transposition of a matrix of floats: how a computed operand gets into the layout of a tile kernel. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"

namespace flywheel::kernels {

// out[c * out_stride + r] = in[r * in_stride + c] for r < rows, c < columns. They must not overlap.
using TransposeFn = void (*)(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out,
                             int64_t out_stride) noexcept;
TransposeFn transpose_kernel(Isa isa);  // REQUIRES: the machine has `isa` (to run it)

}  // namespace flywheel::kernels
