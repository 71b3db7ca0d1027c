// SPDX-License-Identifier: Apache-2.0
// Which taps of a convolution's kernel fall inside the input, along one axis: output positions with the same taps form
// a range that needs no padding. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace flywheel::kernels {

struct Axis {
  int64_t outputs = 0, inputs = 0, kernel = 1, stride = 1, pad = 0, dilation = 1;  // pad may be negative
};

struct TapRange {
  int64_t begin, end;   // output positions
  int64_t first, last;  // taps [first, last) with 0 <= position * stride + tap * dilation - pad < inputs
};

// Longest ranges with equal taps, in order, covering [0, outputs).
inline std::vector<TapRange> tap_ranges(const Axis& axis) {
  std::vector<TapRange> ranges;
  for (int64_t position = 0; position < axis.outputs; ++position) {
    const int64_t start = position * axis.stride - axis.pad;
    const int64_t first = start >= 0 ? 0 : std::min(axis.kernel, (-start + axis.dilation - 1) / axis.dilation);
    const int64_t last = start >= axis.inputs ? first
                                              : std::clamp((axis.inputs - start + axis.dilation - 1) / axis.dilation,
                                                           first, axis.kernel);
    if (!ranges.empty() && ranges.back().first == first && ranges.back().last == last) {
      ++ranges.back().end;
    } else {
      ranges.push_back({position, position + 1, first, last});
    }
  }
  return ranges;
}

}  // namespace flywheel::kernels
