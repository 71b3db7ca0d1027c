// SPDX-License-Identifier: Apache-2.0
// Transposition of a matrix of 1-, 2-, 4- or 8-byte elements, compiled for each ISA: what a copy is made of when the
// view it reads and the view it writes are contiguous along different dims. Stateless; any thread.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

struct Transposition {
  int64_t element_bytes;
  const void* x;
  int64_t x_stride;  // elements between rows of x
  void* y;
  int64_t y_stride;       // elements between rows of y
  int64_t rows, columns;  // of x: y[c * y_stride + r] = x[r * x_stride + c]
};
using TransposeFn = void (*)(const Transposition& work);

namespace avx512 {
void transpose(const Transposition& work);
}
namespace avx2 {
void transpose(const Transposition& work);
}
namespace portable {
void transpose(const Transposition& work);
}

}  // namespace flywheel::kernels
