// SPDX-License-Identifier: Apache-2.0
// conv: the attributes, the reference against sums by hand, and every tactic against the reference.
#include "kernels/conv/conv.h"

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

struct Conv {
  int64_t n = 1, h = 1, w = 1, c = 1, k = 1;
  int64_t r = 1, s = 1, stride = 1, pad = 0, dilation = 1, groups = 1;
  std::string ending = "bias_relu";
  int64_t in_gap = 0, out_gap = 0;
  int64_t extra_pad = 0;  // at the bottom and on the right
};

Problem problem_of(const Conv& c) {
  Problem problem;
  problem.family = Family::kConv;
  problem.inputs = {with_gap({c.n, c.h, c.w, c.c}, c.in_gap), with_gap({c.k, c.c / c.groups, c.r, c.s}, 0)};
  problem.constant = {false, true};
  const int64_t pad_w = c.s == 1 ? 0 : c.pad, pad_h = c.r == 1 ? 0 : c.pad;
  const int64_t oh = (c.h + 2 * pad_h + c.extra_pad - c.dilation * (c.r - 1) - 1) / c.stride + 1;
  const int64_t ow = (c.w + 2 * pad_w + c.extra_pad - c.dilation * (c.s - 1) - 1) / c.stride + 1;
  problem.outputs = {with_gap({c.n, oh, ow, c.k}, c.out_gap)};
  ConvParams params{c.r,        c.s,        c.stride, c.stride, pad_h, pad_w, pad_h + c.extra_pad, pad_w + c.extra_pad,
                    c.dilation, c.dilation, c.groups};
  problem.ints = params.to_ints();
  EXPECT_TRUE(add_ending(problem, c.ending));
  return problem;
}

// "conv_f32_14x32_avx512" and so on, for each ISA that the machine has.
bool ran_on_all(const std::vector<std::string>& names, const std::string& prefix) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!testing::machine().has(isa)) continue;
    const auto matches = [&](const std::string& name) {
      return name.starts_with(prefix) && name.ends_with(std::string("_") + std::string(isa_name(isa)));
    };
    if (std::none_of(names.begin(), names.end(), matches)) return false;
  }
  return true;
}

TEST(ConvParams, ReadsAttributes) {
  auto params = ConvParams::from(
      problem_of({.n = 2, .h = 9, .w = 11, .c = 6, .k = 4, .r = 3, .s = 5, .stride = 2, .pad = 1, .groups = 2}));
  ASSERT_TRUE(params.is_ok()) << params.status().to_string();
  EXPECT_EQ(params->kernel_h, 3);
  EXPECT_EQ(params->kernel_w, 5);
  EXPECT_EQ(params->stride_w, 2);
  EXPECT_EQ(params->groups, 2);
  EXPECT_EQ(
      params->to_ints(),
      problem_of({.n = 2, .h = 9, .w = 11, .c = 6, .k = 4, .r = 3, .s = 5, .stride = 2, .pad = 1, .groups = 2}).ints);
}

TEST(ConvParams, RefusesWhatDoesNotFit) {
  const Conv good{.h = 5, .w = 5, .c = 4, .k = 4, .r = 3, .s = 3, .pad = 1};
  auto message = [](const Problem& problem) { return ConvParams::from(problem).status().message(); };
  ASSERT_EQ(message(problem_of(good)), "");
  Problem problem = problem_of(good);
  problem.ints.pop_back();
  EXPECT_THAT(message(problem), ::testing::HasSubstr("11 attributes; found 10"));
  problem = problem_of(good);
  problem.ints[2] = 0;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("stride_h is 0"));
  problem = problem_of(good);
  problem.ints[8] = int64_t{1} << 62;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("dilation_h"));
  problem = problem_of(good);
  problem.ints[8] = 100;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("larger than the padded input"));
  problem = problem_of(good);
  problem.ints[10] = 3;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("3 groups"));
  problem = problem_of(good);
  problem.outputs[0] = with_gap({1, 5, 6, 4}, 0);
  EXPECT_THAT(message(problem), ::testing::HasSubstr("1x5x6x4; expected 1x5x5x4"));
  problem = problem_of(good);
  problem.inputs[0].strides = {100, 5, 1, 25};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("NHWC"));
}

TEST(ConvReference, MatchesSumsByHand) {
  // One 3x3 image of two channels, a 2x2 kernel, one column of padding on the left.
  Problem problem;
  problem.family = Family::kConv;
  problem.inputs = {with_gap({1, 3, 3, 2}, 0), with_gap({1, 2, 2, 2}, 0)};
  problem.constant = {false, true};
  problem.outputs = {with_gap({1, 2, 3, 1}, 0)};
  problem.ints = ConvParams{2, 2, 1, 1, 0, 1, 0, 0, 1, 1, 1}.to_ints();
  problem.program.inputs = 1;
  const float x[] = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60, 7, 70, 8, 80, 9, 90};
  const float w[] = {1, 2, 3, 4, 0.5F, 0, 0, 0.25F};  // channel 0: [[1, 2], [3, 4]]; channel 1: [[.5, 0], [0, .25]]
  float y[6] = {};
  const void* inputs[] = {x, w};
  void* outputs[] = {y};
  std::atomic<uint32_t> faults{0};
  auto kernel = tactics(Family::kConv).back().bind(problem, testing::machine(), 1);
  ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  Worker alone = Worker::alone();
  (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
  // (0,0): 2*1 + 4*4 + .25*40. (1,2): 1*5 + 2*6 + 3*8 + 4*9 + .5*50 + .25*90.
  EXPECT_THAT(y, ::testing::ElementsAre(28, 54.5F, 72, 53.5F, 107, 124.5F));
}

TEST(ConvTactics, EveryEnding) {
  for (const std::string& ending : testing::ending_names()) {
    const auto ran = expect_tactics_match(
        problem_of(
            {.n = 2, .h = 6, .w = 9, .c = 8, .k = 40, .r = 3, .s = 3, .pad = 1, .ending = ending, .out_gap = 24}),
        1);
    EXPECT_TRUE(ran_on_all(ran, "conv_f32_")) << ending;
    expect_tactics_match(problem_of({.n = 2, .h = 3, .w = 5, .c = 16, .k = 33, .ending = ending}), 2, {2});
  }
}

// Kernels, strides and channels of ResNet, MobileNet, YOLO, U-Net and SqueezeNet, on pictures with the same remainders.
TEST(ConvTactics, RealShapes) {
  expect_tactics_match(problem_of({.h = 37, .w = 56, .c = 3, .k = 64, .r = 7, .s = 7, .stride = 2, .pad = 3}), 1,
                       {1, 2});
  expect_tactics_match(
      problem_of({.h = 20, .w = 44, .c = 3, .k = 16, .r = 3, .s = 3, .stride = 2, .pad = 1, .ending = "bias_silu"}), 2);
  expect_tactics_match(problem_of({.h = 7, .w = 7, .c = 512, .k = 64, .r = 3, .s = 3, .pad = 1}), 3, {1, 2});
  expect_tactics_match(problem_of({.n = 3, .h = 14, .w = 14, .c = 64, .k = 64, .r = 3, .s = 3, .stride = 2, .pad = 1}),
                       4, {2, 3});
  expect_tactics_match(problem_of({.h = 14, .w = 14, .c = 96, .k = 96, .r = 3, .s = 3, .pad = 1}), 5, {1, 2});
  expect_tactics_match(problem_of({.h = 14, .w = 14, .c = 256, .k = 96, .stride = 2, .ending = "bias"}), 6, {1, 2});
  expect_tactics_match(problem_of({.n = 2, .h = 7, .w = 7, .c = 2048, .k = 128, .ending = "bias_res_relu"}), 7, {1, 2});
  expect_tactics_match(problem_of({.h = 28, .w = 28, .c = 24, .k = 144, .ending = "bias_clip"}), 8, {1, 2});
  expect_tactics_match(problem_of({.h = 28, .w = 28, .c = 144, .k = 24, .ending = "bias_res"}), 9, {1, 2});
  expect_tactics_match(
      problem_of({.h = 16, .w = 80, .c = 16, .k = 16, .r = 3, .s = 3, .pad = 1, .ending = "bias_silu"}), 10, {1, 2});
  expect_tactics_match(
      problem_of({.h = 20, .w = 20, .c = 128, .k = 80, .ending = "bias", .in_gap = 128, .out_gap = 64}), 11, {1, 2});
  expect_tactics_match(problem_of({.h = 13, .w = 13, .c = 16, .k = 64, .r = 3, .s = 3, .pad = 1, .out_gap = 64}), 12,
                       {1, 2});
  expect_tactics_match(problem_of({.h = 32, .w = 32, .c = 32, .k = 2, .ending = "bias_sigmoid"}), 13, {1, 2});
}

TEST(ConvTactics, OneDimension) {
  expect_tactics_match(
      problem_of({.n = 2, .h = 1, .w = 50, .c = 20, .k = 24, .r = 1, .s = 3, .pad = 1, .ending = "bias_gelu"}), 1);
  expect_tactics_match(problem_of({.n = 2, .h = 50, .w = 1, .c = 20, .k = 24, .r = 5, .s = 1, .stride = 2, .pad = 2}),
                       2);
  // A picture one pixel wide or high, of which wider kernels see one column or row.
  expect_tactics_match(
      problem_of({.n = 3, .h = 4, .w = 1, .c = 16, .k = 1, .r = 5, .s = 3, .pad = 2, .ending = "bias"}), 3);
  expect_tactics_match(problem_of({.n = 2, .h = 9, .w = 1, .c = 16, .k = 16, .r = 3, .s = 5, .pad = 2}), 4);
  expect_tactics_match(problem_of({.n = 2, .h = 1, .w = 9, .c = 16, .k = 16, .r = 5, .s = 3, .pad = 2}), 5);
}

TEST(ConvTactics, BordersLargerThanThePicture) {
  expect_tactics_match(problem_of({.h = 2, .w = 3, .c = 5, .k = 17, .r = 5, .s = 5, .pad = 4}), 1);
  expect_tactics_match(problem_of({.h = 4, .w = 4, .c = 5, .k = 17, .r = 3, .s = 3, .pad = 6, .dilation = 3}), 2);
  expect_tactics_match(problem_of({.h = 1, .w = 1, .c = 8, .k = 8, .r = 3, .s = 3, .pad = 3}), 3);  // some see no pixel
}

TEST(ConvTactics, Groups) {
  expect_tactics_match(problem_of({.n = 2,
                                   .h = 9,
                                   .w = 10,
                                   .c = 32,
                                   .k = 48,
                                   .r = 3,
                                   .s = 3,
                                   .pad = 1,
                                   .groups = 4,
                                   .ending = "bias_res_relu"}),
                       1);
  expect_tactics_match(problem_of({.h = 5, .w = 5, .c = 192, .k = 192, .groups = 2, .ending = "bias_silu"}), 2);
  expect_tactics_match(problem_of({.h = 5, .w = 6, .c = 3, .k = 12, .r = 3, .s = 3, .pad = 1, .groups = 3}), 3);
}

TEST(ConvTactics, Depthwise) {
  const auto ran = expect_tactics_match(
      problem_of(
          {.n = 2, .h = 28, .w = 28, .c = 40, .k = 40, .r = 3, .s = 3, .pad = 1, .groups = 40, .ending = "bias_clip"}),
      1);
  EXPECT_TRUE(ran_on_all(ran, "conv_f32_depthwise_"));
  expect_tactics_match(problem_of({.h = 30,
                                   .w = 112,
                                   .c = 32,
                                   .k = 32,
                                   .r = 3,
                                   .s = 3,
                                   .stride = 2,
                                   .pad = 1,
                                   .groups = 32,
                                   .ending = "bias_clip"}),
                       2);
  expect_tactics_match(
      problem_of({.h = 7, .w = 7, .c = 960, .k = 960, .r = 3, .s = 3, .pad = 1, .groups = 960, .ending = "bias_clip"}),
      3);
  expect_tactics_match(
      problem_of({.h = 14, .w = 14, .c = 96, .k = 96, .r = 7, .s = 7, .pad = 3, .groups = 96, .ending = "bias"}), 4,
      {1, 2});
  expect_tactics_match(problem_of({.h = 14,
                                   .w = 14,
                                   .c = 240,
                                   .k = 240,
                                   .r = 5,
                                   .s = 5,
                                   .stride = 2,
                                   .pad = 2,
                                   .groups = 240,
                                   .ending = "bias_hswish"}),
                       5);
  expect_tactics_match(
      problem_of({.h = 1, .w = 40, .c = 24, .k = 24, .r = 1, .s = 7, .pad = 3, .groups = 24, .ending = "bias_silu"}),
      6);
  for (const std::string& ending : testing::ending_names()) {
    expect_tactics_match(problem_of({.n = 2,
                                     .h = 9,
                                     .w = 15,
                                     .c = 37,
                                     .k = 37,
                                     .r = 3,
                                     .s = 3,
                                     .pad = 2,
                                     .dilation = 2,
                                     .groups = 37,
                                     .ending = ending,
                                     .in_gap = 3,
                                     .out_gap = 5}),
                         7);
  }
}

TEST(ConvTactics, Winograd) {
  auto ran = expect_tactics_match(problem_of({.h = 14, .w = 14, .c = 64, .k = 96, .r = 3, .s = 3, .pad = 1}), 1);
  EXPECT_TRUE(ran_on_all(ran, "conv_f32_winograd4_"));
  EXPECT_TRUE(ran_on_all(ran, "conv_f32_winograd2_"));
  // Chunks of tiles, one after the other, with shared and with private matrices.
  expect_tactics_match(
      problem_of({.n = 2, .h = 56, .w = 28, .c = 16, .k = 32, .r = 3, .s = 3, .pad = 1, .ending = "bias_res_relu"}), 2,
      {1, 2});
  expect_tactics_match(problem_of({.n = 1, .h = 30, .w = 30, .c = 192, .k = 160, .r = 3, .s = 3, .pad = 1}), 3, {1, 2});
  expect_tactics_match(problem_of({.n = 2, .h = 7, .w = 7, .c = 512, .k = 160, .r = 3, .s = 3, .pad = 1}), 4);
  for (const std::string& ending : testing::ending_names()) {
    expect_tactics_match(problem_of({.n = 2,
                                     .h = 9,
                                     .w = 11,
                                     .c = 21,
                                     .k = 43,
                                     .r = 3,
                                     .s = 3,
                                     .pad = 1,
                                     .ending = ending,
                                     .in_gap = 3,
                                     .out_gap = 5}),
                         5);
  }
  for (int64_t pad : {0, 2, 3}) {
    expect_tactics_match(
        problem_of({.h = 6, .w = 5, .c = 17, .k = 16, .r = 3, .s = 3, .pad = pad, .extra_pad = pad / 2}), 6);
  }
}

TEST(ConvTactics, EmptyBatch) {
  expect_tactics_match(problem_of({.n = 0, .h = 5, .w = 5, .c = 8, .k = 8, .r = 3, .s = 3}), 1);
}

TEST(ConvTactics, RandomProblems) {
  std::minstd_rand generator(17);
  auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 120; ++i) {
    Conv c;
    c.n = 1 + below(3);
    c.groups = below(4) == 0 ? 1 + below(3) : 1;
    c.c = c.groups * (1 + below(40));
    c.k = c.groups * (1 + below(70));
    if (below(4) == 0) c.groups = c.k = c.c;  // depthwise
    c.r = 1 + below(4);
    c.s = below(3) == 0 ? c.r : 1 + below(4);
    c.stride = 1 + below(2);
    c.dilation = 1 + below(2);
    c.pad = below(3);
    c.extra_pad = below(2);
    c.h = c.dilation * (c.r - 1) + 1 + below(12);
    c.w = c.dilation * (c.s - 1) + 1 + below(33);
    if (below(5) == 0) {  // smaller than the kernel
      c.pad = c.dilation * (std::max(c.r, c.s) - 1);
      c.h = 1 + below(3);
      c.w = 1 + below(2);
    }
    c.in_gap = below(2) * 5;
    c.out_gap = below(2) * 11;
    const auto& endings = testing::ending_names();
    c.ending = endings[static_cast<size_t>(below(static_cast<int64_t>(endings.size())))];
    expect_tactics_match(problem_of(c), static_cast<uint32_t>(i), {1 + static_cast<int>(below(3)), 2});
  }
}

TEST(ConvTactics, ImagesDoNotDependOnTheBatch) {
  for (const Conv& base : {Conv{.h = 9, .w = 11, .c = 24, .k = 40, .r = 3, .s = 3, .pad = 1, .ending = "bias_silu"},
                           Conv{.h = 7, .w = 7, .c = 1024, .k = 160},
                           Conv{.h = 15, .w = 20, .c = 3, .k = 32, .r = 7, .s = 7, .stride = 2, .pad = 3},
                           Conv{.h = 8, .w = 9, .c = 20, .k = 20, .r = 3, .s = 3, .pad = 1, .groups = 20}}) {
    expect_batch_invariant(
        [&](int64_t n) {
          Conv c = base;
          c.n = n;
          return problem_of(c);
        },
        {1, 2, 5}, 3);
  }
}

TEST(ConvTactics, WorkspaceGrowsWithTheBatch) {
  for (const Conv& base :
       {Conv{.h = 7, .w = 7, .c = 1024, .k = 160}, Conv{.h = 13, .w = 9, .c = 32, .k = 64, .r = 3, .s = 3, .pad = 1}}) {
    for (const Tactic& tactic : tactics(Family::kConv)) {
      size_t last = 0;
      for (int64_t n = 1; n < 40; ++n) {
        Conv c = base;
        c.n = n;
        if (!tactic.accepts(problem_of(c), testing::machine()).is_ok()) continue;
        auto kernel = tactic.bind(problem_of(c), testing::machine(), 2);
        ASSERT_TRUE(kernel.is_ok());
        EXPECT_GE((*kernel)->workspace_bytes(), last) << tactic.name << " at " << n;
        last = (*kernel)->workspace_bytes();
      }
    }
  }
}

}  // namespace
}  // namespace flywheel::kernels
