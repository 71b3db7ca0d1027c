// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool/pool.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/gemm/testing.h"

namespace flywheel::kernels {
namespace {

Problem pool(PoolParams p, Dims x, int64_t ceil = 0, int64_t gap = 0) {
  auto extent = [&](int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after) {
    const int64_t reach = in + before + after - ((kernel - 1) * dilation + 1);
    int64_t out = (reach + (ceil != 0 ? stride - 1 : 0)) / stride + 1;
    if (ceil != 0 && (out - 1) * stride >= in + before) --out;  // as ONNX has it: no window begins behind the image
    return out;
  };
  Problem problem;
  problem.family = Family::kPool;
  const Dims y{x[0], extent(x[1], p.kernel_h, p.stride_h, p.dilation_h, p.pad_top, p.pad_bottom),
               extent(x[2], p.kernel_w, p.stride_w, p.dilation_w, p.pad_left, p.pad_right), x[3]};
  problem.inputs = {testing::with_gap(x, gap)};
  problem.outputs = {testing::with_gap(y, gap)};
  problem.constant = {false};
  problem.ints = p.to_ints();
  return problem;
}

PoolParams square(PoolKind kind, int64_t kernel, int64_t stride, int64_t pad, bool include = false) {
  PoolParams p;
  p.kind = kind;
  p.kernel_h = p.kernel_w = kernel;
  p.stride_h = p.stride_w = stride;
  p.pad_top = p.pad_left = p.pad_bottom = p.pad_right = pad;
  p.count_include_pad = include;
  return p;
}

std::vector<float> run_all(const Problem& problem, const std::vector<float>& x) {
  std::vector<float> first;
  for (const Tactic& tactic : tactics(Family::kPool)) {
    if (!testing::machine().has(tactic.isa)) continue;
    std::vector<float> y(static_cast<size_t>(problem.outputs[0].elements()));
    auto kernel = tactic.bind(problem, testing::machine(), 1);
    EXPECT_TRUE(kernel.is_ok()) << tactic.name << " " << kernel.status().to_string();
    if (!kernel.is_ok()) continue;
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    std::atomic<uint32_t> faults{0};
    Worker alone = Worker::alone();
    (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
    if (first.empty()) first = y;
    for (size_t i = 0; i < y.size(); ++i) EXPECT_FLOAT_EQ(y[i], first[i]) << tactic.name;
  }
  return first;
}

TEST(Pool, KnownValues) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9};  // 3 x 3
  EXPECT_EQ(run_all(pool(square(PoolKind::kMax, 2, 1, 0), {1, 3, 3, 1}), x), (std::vector<float>{5, 6, 8, 9}));
  EXPECT_EQ(run_all(pool(square(PoolKind::kAverage, 2, 1, 0), {1, 3, 3, 1}), x), (std::vector<float>{3, 4, 6, 7}));
  // Padding 1, stride 2: windows of 4, 4, 4, 4 elements, 1, 2, 2 and 4 of them inside.
  EXPECT_EQ(run_all(pool(square(PoolKind::kMax, 2, 2, 1), {1, 3, 3, 1}), x), (std::vector<float>{1, 3, 7, 9}));
  EXPECT_EQ(run_all(pool(square(PoolKind::kAverage, 2, 2, 1), {1, 3, 3, 1}), x), (std::vector<float>{1, 2.5, 5.5, 7}));
  EXPECT_EQ(run_all(pool(square(PoolKind::kAverage, 2, 2, 1, true), {1, 3, 3, 1}), x),
            (std::vector<float>{0.25, 1.25, 2.75, 7}));
  // Ceil mode: the last window reaches past the image; what lies outside does not count.
  EXPECT_EQ(run_all(pool(square(PoolKind::kAverage, 2, 2, 0, true), {1, 3, 3, 1}, 1), x),
            (std::vector<float>{3, 4.5, 7.5, 9}));
  const std::vector<float> negative(9, -3.0F);
  EXPECT_EQ(run_all(pool(square(PoolKind::kMax, 3, 2, 1), {1, 3, 3, 1}), negative),
            (std::vector<float>{-3, -3, -3, -3}));
}

TEST(Pool, MatchesReferenceOnShapesOfModels) {
  uint32_t seed = 1;
  for (PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    testing::expect_tactics_match(pool(square(kind, 3, 2, 1), {1, 28, 28, 64}), seed++);
    testing::expect_tactics_match(pool(square(kind, 3, 2, 0), {2, 27, 27, 96}, 1), seed++);
    testing::expect_tactics_match(pool(square(kind, 5, 1, 2), {1, 20, 20, 128}, 0, 128), seed++);
    testing::expect_tactics_match(pool(square(kind, 2, 2, 0), {2, 16, 24, 33}), seed++);
    testing::expect_tactics_match(pool(square(kind, 7, 1, 0), {2, 7, 7, 50}), seed++);
  }
}

TEST(Pool, MatchesReferenceOnRandomProblems) {
  std::minstd_rand random(3);
  auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  for (uint32_t seed = 0; seed < 60; ++seed) {
    PoolParams p;
    p.kind = pick(0, 1) == 0 ? PoolKind::kMax : PoolKind::kAverage;
    p.kernel_h = pick(1, 4), p.kernel_w = pick(1, 4);
    p.stride_h = pick(1, 3), p.stride_w = pick(1, 3);
    p.dilation_h = pick(1, 2), p.dilation_w = pick(1, 2);
    p.count_include_pad = pick(0, 1) == 1;
    p.pad_top = pick(0, p.kernel_h - 1), p.pad_bottom = pick(0, p.kernel_h - 1);
    p.pad_left = pick(0, p.kernel_w - 1), p.pad_right = pick(0, p.kernel_w - 1);
    testing::expect_tactics_match(pool(p, {pick(1, 2), pick(8, 14), pick(8, 14), pick(1, 70)}, pick(0, 1), pick(0, 5)),
                                  seed);
  }
}

TEST(Pool, RefusesWhatDoesNotFit) {
  const Problem good = pool(square(PoolKind::kMax, 2, 2, 0), {1, 4, 4, 3});
  auto accepted = [&](const Problem& problem) {
    return tactics(Family::kPool).back().accepts(problem, testing::machine()).is_ok();
  };
  EXPECT_TRUE(accepted(good));
  Problem bad = good;
  bad.ints[3] = 0;
  EXPECT_FALSE(accepted(bad));
  bad = good;
  bad.ints[5] = -1;
  EXPECT_FALSE(accepted(bad));
  bad = good;
  bad.ints[0] = 2;
  EXPECT_FALSE(accepted(bad));
  bad = good;
  bad.outputs[0].dims[1] = 5;
  EXPECT_FALSE(accepted(bad));
  bad = good;
  bad.outputs[0].dims[3] = 4;
  EXPECT_FALSE(accepted(bad));
}

}  // namespace
}  // namespace flywheel::kernels
