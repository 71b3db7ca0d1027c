// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/panels.h"

namespace flywheel::kernels {

void pack_panels(const Panels& panels, const PanelSource& source, int64_t first, int64_t last, float* packed) {
  for (int64_t p = first; p < last; ++p) {
    const int64_t width = panels.width_of(p), columns = panels.columns_of(p);
    const float* base = source.data + p * panels.width * source.column_stride;
    float* out = packed + panels.offset(p);
    for (int64_t tap : source.taps) {
      for (int64_t c = 0; c < source.depth; ++c, out += width) {
        const float* in = base + tap + c * source.depth_stride;
        for (int64_t n = 0; n < columns; ++n) out[n] = in[n * source.column_stride];
        for (int64_t n = columns; n < width; ++n) out[n] = 0;
      }
    }
  }
}

}  // namespace flywheel::kernels
