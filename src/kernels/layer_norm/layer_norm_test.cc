// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include "kernels/testing/tactic_check.h"

namespace flywheel::kernels {
namespace {

using check::dense;
using check::expect_invalid;
using check::expect_tactics_match;
using check::expect_values;
using check::random_values;

Problem layer_norm(const Dims& dims, int64_t axis, bool rms, bool bias, DType type = DType::kFloat32) {
  const Dims tail(dims.begin() + std::min<int64_t>(std::max<int64_t>(axis, 0), static_cast<int64_t>(dims.size())),
                  dims.end());
  Problem problem{.family = Family::kLayerNorm,
                  .inputs = {dense(type, dims), dense(type, tail)},
                  .outputs = {dense(type, dims)},
                  .ints = {axis, rms ? 1 : 0},
                  .floats = {1e-5}};
  if (bias) problem.inputs.push_back(dense(type, tail));
  return problem;
}

TEST(LayerNorm, GivesKnownValues) {
  const std::vector<double> x = {1, 2, 3, 4, -2, 0, 0, 6}, scale = {1, 1, 2, 0.5}, bias = {0, 1, 0, -1};
  expect_values(layer_norm({2, 4}, 1, false, true), {x, scale, bias},
                {-1.34163542, 0.55278819, 0.89442361, -0.32918229, -0.99999944, 0.66666685, -0.66666630, -0.16666713});
  expect_values(layer_norm({2, 4}, 1, false, false), {x, scale},
                {-1.34163542, -0.44721181, 0.89442361, 0.67081771, -0.99999944, -0.33333315, -0.66666630, 0.83333287});
  expect_values(layer_norm({2, 4}, 1, true, false), {x, scale},
                {0.36514813, 0.73029626, 2.19088877, 0.73029626, -0.63245522, 0, 0, 0.94868282});
}

TEST(LayerNorm, KeepsPrecisionAroundALargeMean) {
  Problem problem = layer_norm({1, 300}, 1, false, false);
  std::vector<double> x(300), scale(300, 1.0);
  for (int i = 0; i < 300; ++i) x[i] = 4096 + (i % 2);
  std::vector<double> expected(300);
  for (int i = 0; i < 300; ++i) expected[i] = (i % 2 ? 0.5 : -0.5) / 0.50001;
  expect_values(problem, {x, scale}, expected, {1e-4, 0});
}

TEST(LayerNorm, RandomShapes) {
  std::mt19937 random(2);
  for (int round = 0; round < 120; ++round) {
    const int rank = 1 + static_cast<int>(random() % 4);
    const Dims dims = check::random_dims(random, rank, 150);
    const Problem problem = layer_norm(dims, random() % rank, random() % 3 == 0, random() % 2 == 0);
    if (problem.inputs[1].elements() < 3) continue;  // of one or two elements only rounding is left
    expect_tactics_match(problem, random_values(problem, round), {2e-5, 2e-5}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(LayerNorm, ShapesOfModels) {
  for (const Problem& problem : {layer_norm({1, 128, 768}, 2, false, true), layer_norm({1, 56, 56, 96}, 3, false, true),
                                 layer_norm({1, 128, 512}, 2, true, false), layer_norm({2, 768}, 1, false, true)}) {
    EXPECT_GE(expect_tactics_match(problem, random_values(problem, 3), {1e-5, 1e-5}), 1);
  }
  const Problem doubles = layer_norm({4, 37}, 1, false, true, DType::kFloat64);
  EXPECT_EQ(expect_tactics_match(doubles, random_values(doubles, 3), {0, 0}), 0);
}

TEST(LayerNorm, RefusesInvalidProblems) {
  expect_invalid(layer_norm({2, 3}, 2, false, true));
  expect_invalid(layer_norm({2, 3}, -1, false, true));
  expect_invalid(layer_norm({2, 3}, 1, false, true, DType::kInt32));
  Problem problem = layer_norm({2, 3}, 1, false, true);
  problem.floats = {-1};
  expect_invalid(problem);
  problem = layer_norm({2, 3}, 1, false, true);
  problem.inputs[2] = dense(DType::kFloat32, {2});
  expect_invalid(problem);
}

}  // namespace
}  // namespace flywheel::kernels
