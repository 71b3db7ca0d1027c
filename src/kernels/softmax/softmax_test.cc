// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/testing/tactic_check.h"

namespace flywheel::kernels {
namespace {

using check::dense;
using check::expect_invalid;
using check::expect_tactics_match;
using check::expect_values;
using check::random_values;

Problem softmax(Dims dims, int64_t axis, bool log = false, DType type = DType::kFloat32) {
  return {.family = Family::kSoftmax,
          .inputs = {dense(type, dims)},
          .outputs = {dense(type, dims)},
          .ints = {axis, log ? 1 : 0}};
}

TEST(Softmax, GivesKnownValues) {
  const std::vector<double> x = {1, 2, 3, 1, 1, 1};
  expect_values(softmax({2, 3}, 1), {x}, {0.09003057, 0.24472847, 0.66524096, 0.33333333, 0.33333333, 0.33333333});
  expect_values(softmax({2, 3}, 0), {x}, {0.5, 0.73105858, 0.88079708, 0.5, 0.26894142, 0.11920292});
  expect_values(softmax({2, 3}, 1, true), {x},
                {-2.40760596, -1.40760596, -0.40760596, -1.09861229, -1.09861229, -1.09861229});
  expect_values(softmax({2, 3}, 1, false, DType::kFloat64), {x},
                {0.09003057317038, 0.24472847105479, 0.66524095577482, 1. / 3, 1. / 3, 1. / 3}, {1e-12, 0});
}

TEST(Softmax, HandlesExtremes) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  expect_values(softmax({1, 3}, 1), {{1e30, -1e30, 0}}, {1, 0, 0});
  expect_values(softmax({1, 3}, 1), {{-inf, 5, 5}}, {0, 0.5, 0.5});
  expect_values(softmax({1, 3}, 1), {{-inf, -inf, -inf}}, {nan, nan, nan});
  expect_values(softmax({1, 3}, 1), {{0, nan, 1}}, {nan, nan, nan});
  expect_values(softmax({1, 2}, 1, true), {{1000, 0}}, {0, -1000});
  expect_values(softmax({2, 1}, 1), {{3, -7}}, {1, 1});
  expect_values(softmax({0, 4}, 1), {{}}, {});
}

TEST(Softmax, RandomShapes) {
  std::mt19937 random(2);
  for (int round = 0; round < 120; ++round) {
    const int rank = 1 + static_cast<int>(random() % 4);
    const Dims dims = check::random_dims(random, rank, 150);
    const Problem problem = softmax(dims, random() % rank, random() % 3 == 0);
    expect_tactics_match(problem, random_values(problem, round), {3e-6, 1e-6}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(Softmax, ShapesOfModels) {
  for (const Problem& problem : {softmax({1, 12, 128, 128}, 3), softmax({8, 1000}, 1), softmax({1, 4, 16, 8400}, 2),
                                 softmax({1, 21, 130, 130}, 1, true), softmax({7, 50257}, 1)}) {
    EXPECT_GE(expect_tactics_match(problem, random_values(problem, 3), {5e-6, 1e-7}), 1);
  }
}

TEST(Softmax, RefusesInvalidProblems) {
  expect_invalid(softmax({2, 3}, 2));
  expect_invalid(softmax({2, 3}, -1));
  expect_invalid(softmax({2, 3}, 0, false, DType::kInt32));
  Problem problem = softmax({2, 3}, 0);
  problem.outputs[0].strides = {5, 1};
  expect_invalid(problem);
  problem = softmax({2, 3}, 0);
  problem.ints = {0};
  expect_invalid(problem);
}

}  // namespace
}  // namespace flywheel::kernels
