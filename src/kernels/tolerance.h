// SPDX-License-Identifier: Apache-2.0
// How far a kernel may be from the double-precision reference, stated once for tests, for `flywheel verify` and for
// anything else that compares results.
#pragma once

#include <cmath>

#include "flywheel/dtype.h"

namespace flywheel::kernels {

// |got - want| <= of_largest * (largest |want| of the tensor) + absolute.
// Contractions are judged against the tensor's largest value: where a sum of thousands of products cancels, an error
// relative to what is left says nothing about the kernel.
struct Tolerance {
  double of_largest = 0;
  double absolute = 0;
  bool holds(double got, double want, double largest) const {
    if (std::isnan(want)) return std::isnan(got);
    return got == want || std::abs(got - want) <= of_largest * largest + absolute;
  }
};

// One chain of f32 multiply-adds a result: measured 1e-6 over 4608 terms.
inline constexpr Tolerance kDirectTolerance{1e-5, 1e-6};
// F(2x2,3x3) measures 2e-7 to 1e-6, F(4x4,3x3) 6e-6.
inline constexpr Tolerance kWinograd2Tolerance{1e-5, 1e-6};
inline constexpr Tolerance kWinograd4Tolerance{4e-5, 1e-6};

}  // namespace flywheel::kernels
