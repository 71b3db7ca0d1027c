// SPDX-License-Identifier: Apache-2.0
// Runs tactics on problems in tests: operands laid out as their descriptions say, guard bytes around and between what
// an output may write, teams of several sizes, and every tactic of a family against its reference. Test programs only.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/tactic.h"

namespace flywheel::kernels::check {

TensorDesc dense(DType dtype, Dims dims);
// A view of `dims` whose dims lie in memory in the order `order` (outermost first), with `gap` unused elements after
// each run of the innermost.
TensorDesc laid_out(DType dtype, const Dims& dims, const std::vector<int>& order, int64_t gap);

// Mostly small extents, some up to `largest`, at most 8,000 elements in all.
Dims random_dims(std::mt19937& random, int rank, int64_t largest);

// The values of a problem's inputs, in row-major order of each input's dims.
using Values = std::vector<std::vector<double>>;
// Small random values that every type can hold: floats in [-2, 2], integers in [0, 3] or [-3, 3], bools.
Values random_values(const Problem& problem, uint32_t seed);

struct Outcome {
  std::vector<double> values;  // row-major order of the output's dims
  uint32_t faults = 0;
};
// Binds and launches with `workers` members; fails the test when bytes outside the output change, or when launch
// allocates.
Outcome run_tactic(const Tactic& tactic, const Problem& problem, const Values& inputs, int workers);
// The reference with one worker.
Outcome run_reference(const Problem& problem, const Values& inputs);

struct Tolerance {
  double relative = 1e-5, absolute = 1e-6;
};
// Every tactic that accepts the problem on this machine, with teams of each size in `workers`: within `tolerance` of
// the reference (NaN and infinities must agree), and the same bits whatever the team. Returns how many tactics ran
// besides the reference.
int expect_tactics_match(const Problem& problem, const Values& inputs, Tolerance tolerance,
                         std::initializer_list<int> workers = {1, 2, 3});
// The reference, and each tactic that accepts the problem, gives `expected`.
void expect_values(const Problem& problem, const Values& inputs, const std::vector<double>& expected,
                   Tolerance tolerance = {});
// accepts() of every tactic refuses, and bind() of the reference does.
void expect_invalid(const Problem& problem);

}  // namespace flywheel::kernels::check
