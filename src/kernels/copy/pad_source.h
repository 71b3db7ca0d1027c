// SPDX-License-Identifier: Apache-2.0
// Where an element of a padded dim comes from. Pure.
#pragma once

#include <cstdint>

#include "kernels/copy/copy.h"

namespace flywheel::kernels {

inline constexpr int64_t kPadFill = INT64_MIN;

// The index in [0, extent) that index i of X, which may lie outside it, stands for; kPadFill for the constant.
// REQUIRES: extent > 0 unless the mode is kConstant.
inline int64_t pad_source(int64_t i, int64_t extent, PadMode mode) {
  if (i >= 0 && i < extent) return i;
  switch (mode) {
    case PadMode::kEdge: return i < 0 ? 0 : extent - 1;
    case PadMode::kWrap: return (i % extent + extent) % extent;
    case PadMode::kReflect: {
      if (extent == 1) return 0;
      const int64_t period = 2 * (extent - 1), phase = (i % period + period) % period;
      return phase < extent ? phase : period - phase;
    }
    default: return kPadFill;
  }
}

}  // namespace flywheel::kernels
