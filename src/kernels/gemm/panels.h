// SPDX-License-Identifier: Apache-2.0
// The packed layout of a contraction's constant (or gathered) matrix B: columns in panels as wide as a tile kernel
// wants, each panel contiguous, one line of its width for each step of the reduction. The last panel is padded with
// zeros, and is of half width when that suffices. Values; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace flywheel::kernels {

struct Panels {
  int64_t columns = 0;  // of B
  int64_t steps = 0;    // length of the reduction
  int64_t width = 0;    // of a full panel

  int64_t rest() const { return columns % width; }
  bool has_narrow() const { return rest() != 0 && rest() <= width / 2; }
  int64_t count() const { return (columns + width - 1) / width; }
  int64_t width_of(int64_t panel) const { return panel + 1 == count() && has_narrow() ? width / 2 : width; }
  int64_t columns_of(int64_t panel) const { return std::min(width, columns - panel * width); }
  int64_t offset(int64_t panel) const { return panel * width * steps; }  // floats
  int64_t padded_columns() const { return (count() - (has_narrow() ? 1 : 0)) * width + (has_narrow() ? width / 2 : 0); }
  // Floats of all panels; nullopt when that overflows.
  std::optional<int64_t> size() const {
    int64_t floats = 0, bytes = 0;
    if (__builtin_mul_overflow(padded_columns(), steps, &floats) || __builtin_mul_overflow(floats, 4, &bytes))
      return {};
    return floats;
  }
};

// Where B's elements are: step t * depth + c, column n is data[n * column_stride + c * depth_stride + taps[t]].
struct PanelSource {
  const float* data = nullptr;
  int64_t column_stride = 0;
  int64_t depth = 0, depth_stride = 0;
  std::vector<int64_t> taps = {0};  // panels.steps == taps.size() * depth
};

// Writes panels [first, last).
void pack_panels(const Panels& panels, const PanelSource& source, int64_t first, int64_t last, float* packed);

}  // namespace flywheel::kernels
