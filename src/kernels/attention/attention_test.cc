// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/gemm/testing.h"

namespace flywheel::kernels {
namespace {

using testing::expect_tactics_match;

struct Shape {
  int64_t batch, heads, queries, keys, depth, value_depth;
};

// Heads of a merged projection: [B, S, H, D] in memory, seen as [B, H, S, D], rows `gap` floats longer than they need
// to be.
TensorDesc heads_view(int64_t batch, int64_t heads, int64_t rows, int64_t depth, int64_t gap) {
  const int64_t row = heads * depth + gap;
  return {DType::kFloat32, {batch, heads, rows, depth}, {rows * row, depth, row, 1}};
}

Problem attention(const Shape& s, MaskKind kind = MaskKind::kNone, Dims mask_dims = {}, bool causal = false,
                  int64_t gap = 0) {
  Problem problem;
  problem.family = Family::kAttention;
  problem.inputs = {heads_view(s.batch, s.heads, s.queries, s.depth, gap),
                    heads_view(s.batch, s.heads, s.keys, s.depth, gap),
                    heads_view(s.batch, s.heads, s.keys, s.value_depth, gap)};
  problem.outputs = {heads_view(s.batch, s.heads, s.queries, s.value_depth, gap)};
  if (kind != MaskKind::kNone) {
    problem.inputs.push_back(
        TensorDesc::contiguous(kind == MaskKind::kAdd ? DType::kFloat32 : DType::kBool, std::move(mask_dims)));
  }
  problem.constant.assign(problem.inputs.size(), false);
  problem.ints = {static_cast<int64_t>(kind), causal ? 1 : 0, 1};
  problem.floats = {1.0 / std::sqrt(static_cast<double>(s.depth))};
  return problem;
}

TEST(Attention, MatchesReferenceOnShapesOfModels) {
  uint32_t seed = 1;
  for (const Shape& shape : {Shape{1, 2, 128, 128, 64, 64}, Shape{2, 3, 33, 33, 32, 32}, Shape{1, 2, 197, 197, 64, 64},
                             Shape{1, 1, 49, 49, 32, 32}, Shape{3, 1, 1, 1, 64, 64}, Shape{1, 2, 1, 77, 80, 80},
                             Shape{1, 1, 300, 700, 16, 24}}) {
    const auto ran = expect_tactics_match(attention(shape), seed++);
    EXPECT_GE(ran.size(), 1U);
  }
}

TEST(Attention, MatchesReferenceWithMasks) {
  const Shape shape{2, 3, 37, 45, 20, 28};
  uint32_t seed = 100;
  for (const Dims& dims :
       {Dims{2, 1, 1, 45}, Dims{2, 3, 37, 45}, Dims{1, 45}, Dims{37, 1}, Dims{1}, Dims{2, 3, 1, 1}}) {
    expect_tactics_match(attention(shape, MaskKind::kAdd, dims), seed++);
    expect_tactics_match(attention(shape, MaskKind::kKeep, dims), seed++);
  }
}

TEST(Attention, MatchesReferenceOnRandomProblems) {
  std::minstd_rand random(5);
  auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  for (uint32_t seed = 0; seed < 25; ++seed) {
    const Shape shape{pick(1, 3), pick(1, 3), pick(1, 60), pick(1, 90), pick(1, 70), pick(1, 70)};
    expect_tactics_match(attention(shape, MaskKind::kNone, {}, pick(0, 1) == 1, pick(0, 9)), seed);
  }
}

TEST(Attention, ARowDoesNotDependOnItsBatch) {
  testing::expect_batch_invariant([](int64_t rows) { return attention({rows, 2, 40, 40, 24, 24}); }, {1, 2, 5}, 9);
}

// What every tactic gives, which must agree: the values of the first, after comparing the others with it.
std::vector<double> run_all(const Problem& problem, const std::vector<std::vector<float>>& values,
                            const std::vector<uint8_t>& keep = {}) {
  std::vector<const void*> inputs;
  for (const auto& value : values) inputs.push_back(value.data());
  if (!keep.empty()) inputs.push_back(keep.data());
  std::vector<double> first;
  for (const Tactic& tactic : tactics(Family::kAttention)) {
    if (!testing::machine().has(tactic.isa)) continue;
    std::vector<float> y(static_cast<size_t>(problem.outputs[0].elements()));
    auto kernel = tactic.bind(problem, testing::machine(), 1);
    EXPECT_TRUE(kernel.is_ok()) << tactic.name;
    auto workspace = AlignedBuffer::allocate((*kernel)->workspace_bytes(), "test");
    void* outputs[] = {y.data()};
    std::atomic<uint32_t> faults{0};
    Worker alone = Worker::alone();
    (*kernel)->launch({inputs.data(), outputs, nullptr, workspace->data(), &faults}, alone);
    if (first.empty()) first.assign(y.begin(), y.end());
    for (size_t i = 0; i < y.size(); ++i) {
      if (std::isnan(first[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << tactic.name << " element " << i;
      } else {
        EXPECT_NEAR(y[i], first[i], 1e-5) << tactic.name << " element " << i;
      }
    }
  }
  return first;
}

TEST(Attention, KnownValues) {
  // One query [1, 0] against keys [1, 0] and [0, 1]: weights e / (e + 1) and 1 / (e + 1).
  Problem problem = attention({1, 1, 1, 2, 2, 1});
  problem.floats = {1.0};
  const auto y = run_all(problem, {{1, 0}, {1, 0, 0, 1}, {10, 20}});
  EXPECT_NEAR(y[0], (10 * std::exp(1.0) + 20) / (std::exp(1.0) + 1), 1e-5);
}

TEST(Attention, MaskedRowsAreZeroOrNan) {
  Problem problem = attention({1, 1, 2, 2, 1, 1}, MaskKind::kKeep, {2, 2});
  auto y = run_all(problem, {{1, 1}, {1, 1}, {3, 5}}, {0, 0, 0, 1});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 5);
  problem.ints[2] = 0;
  y = run_all(problem, {{1, 1}, {1, 1}, {3, 5}}, {0, 0, 0, 1});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 5);
}

TEST(Attention, CausalHidesLaterKeys) {
  Problem problem = attention({1, 1, 3, 3, 1, 1}, MaskKind::kNone, {}, true);
  const auto y = run_all(problem, {{0, 0, 0}, {1, 1, 1}, {3, 5, 10}});
  EXPECT_NEAR(y[0], 3, 1e-6);
  EXPECT_NEAR(y[1], 4, 1e-6);
  EXPECT_NEAR(y[2], 6, 1e-6);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Machine& machine = testing::machine();
  auto refused = [&](const Problem& problem) {
    for (const Tactic& tactic : tactics(Family::kAttention)) {
      if (tactic.accepts(problem, machine).is_ok()) return false;
    }
    return true;
  };
  Problem good = attention({1, 2, 3, 4, 5, 6});
  EXPECT_FALSE(refused(good));
  Problem bad = good;
  bad.inputs[1].dims[2] = 9;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.inputs[0].strides[3] = 2;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.ints = {7, 0, 0};
  EXPECT_TRUE(refused(bad));
  bad = attention({1, 2, 3, 4, 5, 6}, MaskKind::kAdd, {5});
  EXPECT_TRUE(refused(bad));
  bad = attention({1, 2, 3, 4, 5, 6}, MaskKind::kAdd, {4});
  bad.inputs[3].dtype = DType::kInt64;
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace flywheel::kernels
