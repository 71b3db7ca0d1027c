// SPDX-License-Identifier: Apache-2.0
#include "kernels/resize/resize.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/gemm/testing.h"

namespace flywheel::kernels {
namespace {

Problem resize(Dims x, double scale_h, double scale_w, ResizeMode mode, ResizeCoordinates coordinates,
               NearestRounding rounding = NearestRounding::kRoundPreferFloor, bool exclude = false, int64_t gap = 0) {
  Problem problem;
  problem.family = Family::kResize;
  const Dims y{x[0], static_cast<int64_t>(static_cast<double>(x[1]) * scale_h),
               static_cast<int64_t>(static_cast<double>(x[2]) * scale_w), x[3]};
  problem.inputs = {testing::with_gap(x, gap)};
  problem.outputs = {testing::with_gap(y, gap)};
  problem.constant = {false};
  problem.ints = {static_cast<int64_t>(mode), static_cast<int64_t>(coordinates), static_cast<int64_t>(rounding),
                  exclude ? 1 : 0};
  problem.floats = {scale_h, scale_w, -0.75, 0};
  return problem;
}

// Every tactic gives the expected values: the examples are what the definition of ONNX Resize-19 gives.
void expect_all(const Problem& problem, const std::vector<float>& x, const std::vector<float>& expected) {
  for (const Tactic& tactic : tactics(Family::kResize)) {
    if (!testing::machine().has(tactic.isa)) continue;
    std::vector<float> y(static_cast<size_t>(problem.outputs[0].elements()));
    ASSERT_EQ(y.size(), expected.size());
    auto kernel = tactic.bind(problem, testing::machine(), 1);
    ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    std::atomic<uint32_t> faults{0};
    Worker alone = Worker::alone();
    (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-5) << tactic.name << " element " << i;
  }
}

TEST(Resize, KnownValues) {
  using enum ResizeCoordinates;
  const std::vector<float> a{1, 2, 3, 4};
  std::vector<float> b;
  for (int i = 1; i <= 16; ++i) b.push_back(static_cast<float>(i));
  expect_all(resize({1, 2, 2, 1}, 2, 3, ResizeMode::kNearest, kHalfPixel), a,
             {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4});
  expect_all(resize({1, 2, 2, 1}, 2, 2, ResizeMode::kNearest, kAsymmetric, NearestRounding::kFloor), a,
             {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4});
  expect_all(resize({1, 4, 4, 1}, 0.65, 0.65, ResizeMode::kNearest, kHalfPixel, NearestRounding::kCeil), b,
             {6, 7, 10, 11});
  expect_all(resize({1, 2, 2, 1}, 2, 2, ResizeMode::kLinear, kHalfPixel), a,
             {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4});
  expect_all(resize({1, 2, 2, 1}, 2, 2, ResizeMode::kLinear, kAlignCorners), a,
             {1, 1.333333F, 1.666667F, 2, 1.666667F, 2, 2.333333F, 2.666667F, 2.333333F, 2.666667F, 3, 3.333333F, 3,
              3.333333F, 3.666667F, 4});
  expect_all(resize({1, 4, 4, 1}, 0.6, 0.6, ResizeMode::kLinear, kPytorchHalfPixel), b,
             {2.666667F, 4.333333F, 9.333333F, 11});
  expect_all(resize({1, 4, 4, 1}, 0.6, 0.6, ResizeMode::kLinear, kHalfPixelSymmetric), b,
             {4.333333F, 6, 11, 12.66667F});
  expect_all(resize({1, 4, 4, 1}, 0.8, 0.8, ResizeMode::kCubic, kHalfPixel), b,
             {1.471191F, 2.78125F, 4.08252F, 6.711426F, 8.021484F, 9.322754F, 11.9165F, 13.22656F, 14.52783F});
  expect_all(resize({1, 4, 4, 1}, 0.8, 0.8, ResizeMode::kCubic, kHalfPixel, NearestRounding::kRoundPreferFloor, true),
             b, {1.439636F, 2.756005F, 4.08642F, 6.705115F, 8.021484F, 9.351899F, 12.02677F, 13.34314F, 14.67356F});
}

TEST(Resize, MatchesReference) {
  std::minstd_rand random(3);
  auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  testing::expect_tactics_match(resize({1, 20, 20, 128}, 2, 2, ResizeMode::kNearest, ResizeCoordinates::kAsymmetric,
                                       NearestRounding::kFloor, false, 64),
                                1);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Problem problem = resize({pick(1, 2), pick(2, 9), pick(2, 9), pick(1, 40)},
                                   static_cast<double>(pick(5, 30)) / 10, static_cast<double>(pick(5, 30)) / 10,
                                   static_cast<ResizeMode>(pick(0, 2)), static_cast<ResizeCoordinates>(pick(0, 4)),
                                   static_cast<NearestRounding>(pick(0, 3)), pick(0, 1) == 1, pick(0, 3));
    testing::expect_tactics_match(problem, seed);
  }
}

TEST(Resize, RefusesWhatDoesNotFit) {
  const Problem good = resize({1, 4, 4, 3}, 2, 2, ResizeMode::kLinear, ResizeCoordinates::kHalfPixel);
  EXPECT_TRUE(ResizeParams::from(good).is_ok());
  Problem bad = good;
  bad.ints[0] = 3;
  EXPECT_FALSE(ResizeParams::from(bad).is_ok());
  bad = good;
  bad.floats[0] = -1;
  EXPECT_FALSE(ResizeParams::from(bad).is_ok());
  bad = good;
  bad.outputs[0].dims[3] = 4;
  EXPECT_FALSE(ResizeParams::from(bad).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
