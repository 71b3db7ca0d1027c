// SPDX-License-Identifier: Apache-2.0
// matmul: the shapes, the reference against sums by hand, and every tactic against the reference.
#include "kernels/matmul/matmul.h"

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

TensorDesc transposed(TensorDesc desc) {
  const size_t rank = desc.dims.size();
  std::swap(desc.dims[rank - 1], desc.dims[rank - 2]);
  std::swap(desc.strides[rank - 1], desc.strides[rank - 2]);
  return desc;
}

// Batch dims of A and B; Y's follow.
Problem matmul(Dims a_batch, Dims b_batch, int64_t m, int64_t n, int64_t k, bool trans_a = false, bool trans_b = false,
               const std::string& ending = "none", int64_t gap = 0) {
  Problem problem;
  problem.family = Family::kMatMul;
  auto dims = [](Dims batch, int64_t rows, int64_t columns) {
    batch.push_back(rows);
    batch.push_back(columns);
    return batch;
  };
  Dims batch = a_batch;
  for (size_t i = 0; i < batch.size(); ++i) batch[i] = std::max(a_batch[i], b_batch[i]);
  problem.inputs = {trans_a ? transposed(with_gap(dims(a_batch, k, m), gap)) : with_gap(dims(a_batch, m, k), gap),
                    trans_b ? transposed(with_gap(dims(b_batch, n, k), gap)) : with_gap(dims(b_batch, k, n), gap)};
  problem.constant = {false, false};
  problem.outputs = {with_gap(dims(batch, m, n), gap)};
  EXPECT_TRUE(add_ending(problem, ending));
  return problem;
}

TEST(MatMulParams, ReadsDims) {
  auto params = MatMulParams::from(matmul({2, 1}, {1, 3}, 4, 5, 6));
  ASSERT_TRUE(params.is_ok()) << params.status().to_string();
  EXPECT_EQ(params->m, 4);
  EXPECT_EQ(params->n, 5);
  EXPECT_EQ(params->k, 6);
  EXPECT_EQ(params->batch, (Dims{2, 3}));
}

TEST(MatMulParams, RefusesWhatDoesNotFit) {
  auto message = [](const Problem& problem) { return MatMulParams::from(problem).status().message(); };
  Problem problem = matmul({2}, {2}, 3, 4, 5);
  problem.inputs[1] = with_gap({3, 5, 4}, 0);
  EXPECT_THAT(message(problem), ::testing::HasSubstr("batch dims do not fit"));
  problem = matmul({2}, {2}, 3, 4, 5);
  problem.inputs[1] = with_gap({2, 6, 4}, 0);
  EXPECT_THAT(message(problem), ::testing::HasSubstr("shapes do not fit"));
  problem = matmul({2}, {2}, 3, 4, 5);
  problem.inputs[1].dtype = DType::kFloat64;
  EXPECT_THAT(message(problem), ::testing::HasSubstr("one type"));
  problem = matmul({2}, {2}, 3, 4, 5);
  problem.ints = {1};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("no attributes"));
  problem = matmul({2}, {2}, 3, 4, 5);
  problem.outputs[0].strides = {12, 1, 3};
  EXPECT_THAT(message(problem), ::testing::HasSubstr("rows of stride 1"));
}

template <class T>
void check_by_hand(DType dtype) {
  Problem problem = matmul({2}, {1}, 1, 2, 2);
  for (TensorDesc& desc : problem.inputs) desc.dtype = dtype;
  problem.outputs[0].dtype = dtype;
  const T a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
  T y[4] = {};
  const void* inputs[] = {a, b};
  void* outputs[] = {y};
  std::atomic<uint32_t> faults{0};
  auto kernel = tactics(Family::kMatMul).back().bind(problem, testing::machine(), 1);
  ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  Worker alone = Worker::alone();
  (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
  EXPECT_THAT(y, ::testing::ElementsAre(T{19}, T{22}, T{43}, T{50}));
}

TEST(MatMulReference, MatchesSumsByHandInEveryType) {
  check_by_hand<float>(DType::kFloat32);
  check_by_hand<double>(DType::kFloat64);
  check_by_hand<int32_t>(DType::kInt32);
  check_by_hand<int64_t>(DType::kInt64);
  check_by_hand<uint32_t>(DType::kUInt32);
  check_by_hand<uint64_t>(DType::kUInt64);
}

TEST(MatMulTactics, RealShapes) {
  const auto ran = expect_tactics_match(matmul({1, 3}, {1, 3}, 128, 128, 64, false, true), 1);  // attention scores
  size_t expected = 0;
  for (const Tactic& tactic : tactics(Family::kMatMul)) expected += testing::machine().has(tactic.isa) ? 1 : 0;
  EXPECT_EQ(ran.size(), expected - 1);
  expect_tactics_match(matmul({1, 3}, {1, 3}, 128, 64, 128), 2);                      // and values
  expect_tactics_match(matmul({3}, {3}, 27, 27, 64, false, true), 3);                 // DLRM's interactions
  expect_tactics_match(matmul({2, 2}, {2, 2}, 1, 77, 64, false, true), 4);            // one query
  expect_tactics_match(matmul({5, 2}, {1, 1}, 6, 100, 40, false, false, "bias"), 5);  // one B for all
  expect_tactics_match(matmul({}, {}, 200, 96, 70, false, false, "bias_res_relu"), 6);
}

TEST(MatMulTactics, EveryEnding) {
  for (const std::string& ending : testing::ending_names()) {
    expect_tactics_match(matmul({2, 3}, {2, 1}, 19, 45, 23, false, true, ending, 3), 7, {1, 3});
  }
}

TEST(MatMulTactics, RandomProblems) {
  std::minstd_rand generator(29);
  auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 120; ++i) {
    Dims a_batch, b_batch;
    for (int64_t d = below(4); d > 0; --d) {
      const int64_t extent = 1 + below(3), which = below(4);
      a_batch.push_back(which == 0 ? 1 : extent);
      b_batch.push_back(which == 1 ? 1 : extent);
    }
    const auto& endings = testing::ending_names();
    const std::string& ending = endings[static_cast<size_t>(below(static_cast<int64_t>(endings.size())))];
    expect_tactics_match(matmul(a_batch, b_batch, 1 + below(40), 1 + below(90), below(80), below(2) == 1, below(2) == 1,
                                ending, below(2) * 5),
                         static_cast<uint32_t>(i), {1 + static_cast<int>(below(4)), 2});
  }
}

TEST(MatMulTactics, StridesThatAreNeitherRowsNorColumns) {
  Problem problem = matmul({}, {}, 9, 40, 11);
  problem.inputs[0].strides = {30, 2};
  problem.inputs[1].strides = {100, 2};
  expect_tactics_match(problem, 8);
}

TEST(MatMulTactics, MatricesDoNotDependOnTheBatch) {
  expect_batch_invariant(
      [](int64_t n) {
        return matmul({n, 2}, {n, 2}, 17, 70, 33, false, true, "none");
      },
      {1, 2, 5}, 9);
  expect_batch_invariant([](int64_t n) { return matmul({n}, {n}, 3, 64, 50, true, false, "none"); }, {1, 4}, 10);
}

TEST(MatMulTactics, WorkspaceGrowsWithRows) {
  for (const Tactic& tactic : tactics(Family::kMatMul)) {
    size_t last = 0;
    for (int64_t m = 1; m < 100; ++m) {
      auto kernel = tactic.bind(matmul({2}, {2}, m, 100, 64, true), testing::machine(), 2);
      ASSERT_TRUE(kernel.is_ok());
      EXPECT_GE((*kernel)->workspace_bytes(), last) << tactic.name << " at " << m;
      last = (*kernel)->workspace_bytes();
    }
  }
}

}  // namespace
}  // namespace flywheel::kernels
