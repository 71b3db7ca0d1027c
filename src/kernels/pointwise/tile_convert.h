// SPDX-License-Identifier: Apache-2.0
// Elements of any type to and from f32, a row at a time: what pointwise tiles do with operands that are not f32 rows.
// Compiled for each ISA. Conversions are those of element.h. Stateless; any thread.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"
#include "flywheel/dtype.h"

namespace flywheel::kernels {

struct TileConvert {
  // to[i] = from[i * stride]; the stride counts elements of `dtype`.
  void (*load)(DType dtype, const void* from, int64_t stride, int64_t count, float* to);
  // to[i * stride] = from[i].
  void (*store)(DType dtype, const float* from, int64_t count, void* to, int64_t stride);
};
TileConvert tile_convert(Isa isa);  // REQUIRES: the machine has `isa`

#define FW_DECLARE_TILE_CONVERT(isa)                                                               \
  namespace isa {                                                                                  \
  void load_as_floats(DType dtype, const void* from, int64_t stride, int64_t count, float* to);    \
  void store_from_floats(DType dtype, const float* from, int64_t count, void* to, int64_t stride); \
  }
FW_DECLARE_TILE_CONVERT(avx512)
FW_DECLARE_TILE_CONVERT(avx2)
FW_DECLARE_TILE_CONVERT(portable)
#undef FW_DECLARE_TILE_CONVERT

}  // namespace flywheel::kernels
