// SPDX-License-Identifier: Apache-2.0
// conv_transpose: the attributes, the reference against sums by hand, and every tactic against the reference.
#include "kernels/conv_transpose/conv_transpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kernels/gemm/testing.h"

namespace flywheel::kernels {
namespace {

using testing::add_ending;
using testing::expect_batch_invariant;
using testing::expect_tactics_match;
using testing::with_gap;

struct Transposed {
  int64_t n = 1, h = 1, w = 1, c = 1, k = 1;
  int64_t r = 1, s = 1, stride = 1, pad = 0, dilation = 1, groups = 1, output_padding = 0;
  std::string ending = "bias_relu";
  int64_t in_gap = 0, out_gap = 0;
};

Problem problem_of(const Transposed& t) {
  Problem problem;
  problem.family = Family::kConvTranspose;
  problem.inputs = {with_gap({t.n, t.h, t.w, t.c}, t.in_gap), with_gap({t.c, t.k / t.groups, t.r, t.s}, 0)};
  problem.constant = {false, true};
  const int64_t oh = (t.h - 1) * t.stride - 2 * t.pad + t.dilation * (t.r - 1) + 1 + t.output_padding;
  const int64_t ow = (t.w - 1) * t.stride - 2 * t.pad + t.dilation * (t.s - 1) + 1 + t.output_padding;
  problem.outputs = {with_gap({t.n, oh, ow, t.k}, t.out_gap)};
  problem.ints =
      ConvParams{t.r, t.s, t.stride, t.stride, t.pad, t.pad, t.pad, t.pad, t.dilation, t.dilation, t.groups}.to_ints();
  EXPECT_TRUE(add_ending(problem, t.ending));
  return problem;
}

TEST(ConvTransposeParams, RefusesWhatDoesNotFit) {
  const Transposed good{.h = 3, .w = 3, .c = 4, .k = 6, .r = 3, .s = 3, .stride = 2, .pad = 1, .output_padding = 1};
  auto message = [](const Problem& problem) { return conv_transpose_params(problem).status().message(); };
  ASSERT_EQ(message(problem_of(good)), "");
  Problem problem = problem_of(good);
  problem.outputs[0] = with_gap({1, 4, 6, 6}, 0);
  EXPECT_THAT(message(problem), ::testing::HasSubstr("1x4x6x6; expected 1x5x5x6"));
  problem = problem_of(good);
  problem.inputs[1] = with_gap({5, 6, 3, 3}, 0);
  EXPECT_THAT(message(problem), ::testing::HasSubstr("do not fit 4 input channels"));
  problem = problem_of(good);
  problem.ints[3] = -1;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("stride_w is -1"));
}

TEST(ConvTransposeReference, MatchesSumsByHand) {
  // Two pixels, a 1x3 kernel of stride 2: the middle output gets both.
  Problem problem = problem_of({.h = 1, .w = 2, .c = 1, .k = 1, .r = 1, .s = 3, .stride = 2, .ending = "none"});
  ASSERT_EQ(problem.outputs[0].dims, (Dims{1, 1, 5, 1}));
  const float x[] = {10, 100}, w[] = {1, 2, 3};
  float y[5] = {};
  const void* inputs[] = {x, w};
  void* outputs[] = {y};
  std::atomic<uint32_t> faults{0};
  auto kernel = tactics(Family::kConvTranspose).back().bind(problem, testing::machine(), 1);
  ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  Worker alone = Worker::alone();
  (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
  EXPECT_THAT(y, ::testing::ElementsAre(10, 20, 130, 200, 300));
}

TEST(ConvTransposeTactics, UpsamplingByTwo) {
  const auto ran = expect_tactics_match(
      problem_of({.n = 2, .h = 16, .w = 16, .c = 64, .k = 32, .r = 2, .s = 2, .stride = 2, .ending = "bias"}), 1);
  size_t expected = 0;
  for (const Tactic& tactic : tactics(Family::kConvTranspose)) expected += testing::machine().has(tactic.isa) ? 1 : 0;
  EXPECT_EQ(ran.size(), expected - 1);
  expect_tactics_match(
      problem_of({.h = 9, .w = 7, .c = 256, .k = 24, .r = 2, .s = 2, .stride = 2, .ending = "bias", .out_gap = 24}), 2,
      {1, 2});
  expect_tactics_match(problem_of({.h = 5, .w = 8, .c = 20, .k = 36, .r = 4, .s = 4, .stride = 2, .pad = 1}), 3);
  expect_tactics_match(
      problem_of({.h = 5, .w = 8, .c = 20, .k = 36, .r = 3, .s = 3, .stride = 2, .pad = 1, .output_padding = 1}), 4);
}

TEST(ConvTransposeTactics, EveryEnding) {
  for (const std::string& ending : testing::ending_names()) {
    expect_tactics_match(
        problem_of(
            {.n = 2, .h = 4, .w = 5, .c = 12, .k = 35, .r = 3, .s = 2, .stride = 2, .ending = ending, .out_gap = 3}),
        5, {2});
  }
}

// Kernels shorter than the stride leave pixels that no input reaches; they hold the program of zero.
TEST(ConvTransposeTactics, KernelsShorterThanTheStride) {
  expect_tactics_match(problem_of({.h = 4, .w = 3, .c = 8, .k = 8, .r = 1, .s = 2, .stride = 3, .output_padding = 2}),
                       6);
}

TEST(ConvTransposeTactics, RandomProblems) {
  std::minstd_rand generator(23);
  auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 80; ++i) {
    Transposed t;
    t.n = 1 + below(2);
    t.groups = below(3) == 0 ? 1 + below(3) : 1;
    t.c = t.groups * (1 + below(20));
    t.k = t.groups * (1 + below(50));
    t.r = 1 + below(5);
    t.s = 1 + below(5);
    t.stride = 1 + below(4);
    t.dilation = 1 + below(4);
    t.h = 2 + below(8);
    t.w = 2 + below(18);
    t.pad = std::min(below(3), (t.dilation * (std::min(t.r, t.s) - 1) + t.stride) / 2);
    t.output_padding = below(std::max(t.stride, t.dilation));
    t.in_gap = below(2) * 3;
    t.out_gap = below(2) * 7;
    const auto& endings = testing::ending_names();
    t.ending = endings[static_cast<size_t>(below(static_cast<int64_t>(endings.size())))];
    expect_tactics_match(problem_of(t), static_cast<uint32_t>(i), {1 + static_cast<int>(below(3)), 2});
  }
}

TEST(ConvTransposeTactics, ImagesDoNotDependOnTheBatch) {
  expect_batch_invariant(
      [](int64_t n) {
        return problem_of({.n = n, .h = 5, .w = 9, .c = 40, .k = 36, .r = 3, .s = 3, .stride = 2, .pad = 1});
      },
      {1, 2, 4}, 7);
}

}  // namespace
}  // namespace flywheel::kernels
