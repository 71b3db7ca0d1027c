// SPDX-License-Identifier: Apache-2.0
// Compares arrays, and two engines of one model step by step: the one in question against one that was built with the
// reference kernels. Used by `flywheel verify`.
// Pure functions; the contexts are the caller's and used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flywheel/engine.h"
#include "kernels/tolerance.h"

namespace flywheel::runtime {

// For whole models, in which the errors of all steps before add up: ResNet-50 and BERT-base in f32 stay below a tenth.
inline constexpr kernels::Tolerance kModelTolerance{2e-4, 1e-6};

struct Difference {
  int64_t elements = 0;
  int64_t outside = 0;       // elements that the tolerance does not admit
  double largest_error = 0;  // |got - want| where both are finite
  double largest_want = 0;   // largest finite |want|
  int64_t worst = -1;        // flat index of the first element outside, else of the largest error; -1: all are equal
  double got = 0, want = 0;  // there

  bool agrees() const { return outside == 0; }
  // largest_error in parts of largest_want; 0 when there is no error.
  double relative() const {
    return largest_error == 0 || largest_want == 0 ? largest_error : largest_error / largest_want;
  }
};

// Integers and booleans must be equal whatever the tolerance. REQUIRES: both hold whole elements, equally many.
Difference compare_arrays(DType dtype, std::span<const std::byte> got, std::span<const std::byte> want,
                          const kernels::Tolerance& tolerance);

struct StepDifference {
  int step = 0;          // of the engine in question
  std::string value;     // the name of the step's output
  std::string shape;     // "f32 8x56x56x64"
  std::string mismatch;  // why there is no comparison, e.g. other shapes; "" when there is one
  Difference difference;
  bool agrees() const { return mismatch.empty() && difference.agrees(); }
};

// Runs both on the same inputs (shapes set by the caller) and compares every value that both compute, in the order of
// the engine's steps. Takes the memory of all values of the reference. Errors: those of run().
Result<std::vector<StepDifference>> compare_steps(ExecutionContext& context, ExecutionContext& reference,
                                                  std::span<const void* const> inputs,
                                                  const kernels::Tolerance& tolerance = kModelTolerance);

}  // namespace flywheel::runtime
