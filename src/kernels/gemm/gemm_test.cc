// SPDX-License-Identifier: Apache-2.0
// gemm: the attributes, the reference against sums by hand, and every tactic against the reference.
#include "kernels/gemm/gemm.h"

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

Problem gemm(int64_t m, int64_t n, int64_t k, bool trans_b = false, const std::string& ending = "none",
             int64_t gap = 0) {
  Problem problem;
  problem.family = Family::kGemm;
  problem.inputs = {with_gap({m, k}, gap), with_gap(trans_b ? Dims{n, k} : Dims{k, n}, 0)};
  problem.constant = {false, true};
  problem.outputs = {with_gap({m, n}, gap)};
  problem.ints = {trans_b ? 1 : 0};
  EXPECT_TRUE(add_ending(problem, ending));
  return problem;
}

std::vector<std::string> tactic_names() {
  std::vector<std::string> names;
  for (const Tactic& tactic : tactics(Family::kGemm)) {
    if (testing::machine().has(tactic.isa)) names.emplace_back(tactic.name);
  }
  names.pop_back();
  return names;
}

TEST(GemmParams, ReadsDims) {
  auto params = GemmParams::from(gemm(3, 5, 7, true));
  ASSERT_TRUE(params.is_ok()) << params.status().to_string();
  EXPECT_EQ(params->m, 3);
  EXPECT_EQ(params->n, 5);
  EXPECT_EQ(params->k, 7);
  EXPECT_TRUE(params->trans_b);
}

TEST(GemmParams, RefusesWhatDoesNotFit) {
  Problem problem = gemm(3, 5, 7);
  problem.inputs[1] = with_gap({5, 7}, 0);
  EXPECT_THAT(GemmParams::from(problem).status().message(), ::testing::HasSubstr("do not fit"));
  problem = gemm(3, 5, 7);
  problem.ints = {};
  EXPECT_THAT(GemmParams::from(problem).status().message(), ::testing::HasSubstr("trans_b"));
  problem = gemm(3, 5, 7);
  problem.inputs[0].dtype = DType::kInt8;
  EXPECT_THAT(GemmParams::from(problem).status().message(), ::testing::HasSubstr("f32 or f64"));
  problem = gemm(3, 5, 7);
  problem.inputs[1].strides = {1, 7};
  EXPECT_THAT(GemmParams::from(problem).status().message(), ::testing::HasSubstr("contiguous"));
  problem = gemm(3, 5, 7);
  problem.inputs[0].dims = {3, int64_t{1} << 62};
  EXPECT_FALSE(GemmParams::from(problem).is_ok());
  problem = gemm(3, 5, 7, false, "bias");
  problem.inputs.pop_back();
  problem.constant.pop_back();
  EXPECT_FALSE(GemmParams::from(problem).is_ok());
}

TEST(GemmReference, MatchesSumsByHand) {
  Problem problem = gemm(2, 2, 3, false, "bias_relu");
  float a[] = {1, 2, 3, -1, 0, 2}, b[] = {1, 4, 2, 5, 3, 6}, bias[] = {0.5F, -40}, y[4] = {};
  const void* inputs[] = {a, b, bias};
  void* outputs[] = {y};
  std::atomic<uint32_t> faults{0};
  auto kernel = tactics(Family::kGemm).back().bind(problem, testing::machine(), 1);
  ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  Worker alone = Worker::alone();
  (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
  EXPECT_THAT(y, ::testing::ElementsAre(14.5F, 0, 5.5F, 0));
  float transposed[] = {1, 2, 3, 4, 5, 6};
  inputs[1] = transposed;
  problem.inputs[1] = with_gap({2, 3}, 0);
  problem.ints = {1};
  kernel = tactics(Family::kGemm).back().bind(problem, testing::machine(), 1);
  ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
  EXPECT_THAT(y, ::testing::ElementsAre(14.5F, 0, 5.5F, 0));
}

TEST(GemmTactics, EveryEnding) {
  for (const std::string& ending : testing::ending_names()) {
    EXPECT_EQ(expect_tactics_match(gemm(23, 75, 50, false, ending, 5), 1), tactic_names()) << ending;
  }
}

TEST(GemmTactics, EveryNumberOfRows) {
  for (int64_t m = 0; m <= 30; ++m) expect_tactics_match(gemm(m, 100, 37, m % 2 == 1, "bias_res_relu"), 2, {1, 2});
}

TEST(GemmTactics, EveryNumberOfColumns) {
  for (int64_t n = 1; n <= 70; ++n)
    expect_tactics_match(gemm(9, n, 19, n % 2 == 0, n % 3 == 0 ? "bias_silu" : "bias"), 3, {2});
}

// Lengths of transformers' and recommenders' layers, with few rows.
TEST(GemmTactics, RealShapes) {
  expect_tactics_match(gemm(17, 768, 768, false, "bias"), 4, {1, 2});
  expect_tactics_match(gemm(15, 96, 3072, false, "bias_res"), 5, {1, 2});  // staged: rows 12 KB apart
  expect_tactics_match(gemm(130, 256, 1024, true, "bias_gelu"), 6, {2, 3});
  expect_tactics_match(gemm(1, 1000, 2048, true, "bias"), 7, {1, 2});
  expect_tactics_match(gemm(3, 512, 13, true, "bias_relu"), 8);
  expect_tactics_match(gemm(64, 1, 256, true, "bias_sigmoid"), 9);
  expect_tactics_match(gemm(5, 2, 0, false, "bias"), 10);
}

TEST(GemmTactics, RandomProblems) {
  std::minstd_rand generator(11);
  auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % n); };
  for (int i = 0; i < 60; ++i) {
    const auto& endings = testing::ending_names();
    const std::string& ending = endings[static_cast<size_t>(below(static_cast<int64_t>(endings.size())))];
    expect_tactics_match(gemm(1 + below(50), 1 + below(140), 1 + below(300), below(2) == 1, ending, below(3) * 7),
                         static_cast<uint32_t>(100 + i), {1 + static_cast<int>(below(3)), 2});
  }
}

TEST(GemmTactics, RowsDoNotDependOnTheBatch) {
  for (const char* ending : {"bias_relu", "bias_gelu"}) {
    expect_batch_invariant([&](int64_t m) { return gemm(m, 100, 130, false, ending); }, {1, 2, 6, 7, 8, 14, 15, 29, 43},
                           12);
  }
  expect_batch_invariant([](int64_t m) { return gemm(m, 160, 1024, true, "none"); }, {1, 7, 14, 15, 40}, 13);
}

TEST(GemmTactics, RefuseWhatTheyCannotPack) {
  Problem problem = gemm(3, 5, 7);
  problem.constant = {false, false};
  for (const Tactic& tactic : tactics(Family::kGemm)) {
    EXPECT_EQ(tactic.accepts(problem, testing::machine()).is_ok(), std::string_view(tactic.name) == "gemm_reference");
  }
}

// The arena is planned for the largest batch, so a smaller one must never want more.
TEST(GemmTactics, WorkspaceGrowsWithRows) {
  for (const Tactic& tactic : tactics(Family::kGemm)) {
    size_t last = 0;
    for (int64_t m = 1; m < 600; m += m < 40 ? 1 : 13) {
      auto kernel = tactic.bind(gemm(m, 512, 1024), testing::machine(), 2);
      ASSERT_TRUE(kernel.is_ok());
      EXPECT_GE((*kernel)->workspace_bytes(), last) << tactic.name << " at " << m;
      last = (*kernel)->workspace_bytes();
    }
  }
}

}  // namespace
}  // namespace flywheel::kernels
