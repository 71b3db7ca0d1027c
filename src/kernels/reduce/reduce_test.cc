// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/testing/tactic_check.h"

namespace flywheel::kernels {
namespace {

using check::dense;
using check::expect_invalid;
using check::expect_tactics_match;
using check::expect_values;
using check::laid_out;
using check::random_values;

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

Problem reduce(ReduceKind kind, TensorDesc x, std::vector<int64_t> axes, bool keep_dims = true, bool last = false) {
  Dims dims;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) {
      dims.push_back(x.dims[d]);
    } else if (keep_dims) {
      dims.push_back(1);
    }
  }
  const bool arg = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin;
  Problem problem{.family = Family::kReduce,
                  .inputs = {x},
                  .outputs = {dense(arg ? DType::kInt64 : x.dtype, dims)},
                  .ints = {static_cast<int64_t>(kind), keep_dims ? 1 : 0, last ? 1 : 0}};
  problem.ints.insert(problem.ints.end(), axes.begin(), axes.end());
  return problem;
}

TEST(Reduce, GivesKnownValues) {
  const std::vector<double> x = {1, -2, 3, 4, 0.5, -6};
  auto expect = [&](ReduceKind kind, const std::vector<double>& by_row, const std::vector<double>& by_column) {
    expect_values(reduce(kind, dense(DType::kFloat32, {2, 3}), {1}), {x}, by_row);
    expect_values(reduce(kind, dense(DType::kFloat32, {2, 3}), {0}, false), {x}, by_column);
  };
  expect(ReduceKind::kSum, {2, -1.5}, {5, -1.5, -3});
  expect(ReduceKind::kMean, {0.66666667, -0.5}, {2.5, -0.75, -1.5});
  expect(ReduceKind::kMax, {3, 4}, {4, 0.5, 3});
  expect(ReduceKind::kMin, {-2, -6}, {1, -2, -6});
  expect(ReduceKind::kProd, {-6, -12}, {4, -1, -18});
  expect(ReduceKind::kL1, {6, 10.5}, {5, 2.5, 9});
  expect(ReduceKind::kL2, {3.74165739, 7.22841615}, {4.12310563, 2.06155281, 6.70820393});
  expect(ReduceKind::kSumSquare, {14, 52.25}, {17, 4.25, 45});
  expect(ReduceKind::kLogSum, {0.69314718, kNan}, {1.60943791, kNan, kNan});
  expect(ReduceKind::kLogSumExp, {3.13284529, 4.02979374}, {4.04858735, 0.57888973, 3.00012340});
  expect(ReduceKind::kArgMax, {2, 0}, {1, 1, 0});
  expect(ReduceKind::kArgMin, {1, 2}, {0, 0, 1});
  expect_values(reduce(ReduceKind::kSum, dense(DType::kFloat32, {2, 3}), {0, 1}, false), {x}, {0.5});
  expect_values(reduce(ReduceKind::kSum, dense(DType::kFloat32, {2, 3}), {}), {x}, x);
}

TEST(Reduce, IntegersAndTies) {
  const std::vector<double> x = {5, 7, 7, -3, -3, 2};
  const TensorDesc ints = dense(DType::kInt32, {2, 3}), floats = dense(DType::kFloat32, {2, 3});
  expect_values(reduce(ReduceKind::kMean, ints, {1}), {x}, {6, -1});
  expect_values(reduce(ReduceKind::kProd, dense(DType::kInt64, {2, 3}), {1}), {x}, {245, 18});
  for (const TensorDesc& desc : {ints, floats}) {
    expect_values(reduce(ReduceKind::kArgMax, desc, {1}), {x}, {1, 2});
    expect_values(reduce(ReduceKind::kArgMax, desc, {1}, true, true), {x}, {2, 2});
    expect_values(reduce(ReduceKind::kArgMin, desc, {1}, true, true), {x}, {0, 1});
  }
}

TEST(Reduce, ExtremesAndEmptyReductions) {
  const TensorDesc row = dense(DType::kFloat32, {1, 3});
  expect_values(reduce(ReduceKind::kMax, row, {1}), {{1, kNan, 2}}, {kNan});
  expect_values(reduce(ReduceKind::kMin, row, {1}), {{kNan, 1, 2}}, {kNan});
  expect_values(reduce(ReduceKind::kLogSumExp, row, {1}), {{-kInf, -kInf, -kInf}}, {-kInf});
  expect_values(reduce(ReduceKind::kLogSumExp, row, {1}), {{1000, 1000, -1000}}, {1000.69314718}, {1e-6, 0});
  expect_values(reduce(ReduceKind::kArgMax, row, {1}), {{-kInf, kNan, -kInf}}, {0});
  const TensorDesc empty = dense(DType::kFloat32, {2, 0});
  expect_values(reduce(ReduceKind::kSum, empty, {1}), {{}}, {0, 0});
  expect_values(reduce(ReduceKind::kProd, empty, {1}), {{}}, {1, 1});
  expect_values(reduce(ReduceKind::kMax, empty, {1}), {{}}, {-kInf, -kInf});
  expect_values(reduce(ReduceKind::kLogSumExp, empty, {1}), {{}}, {-kInf, -kInf});
  expect_values(reduce(ReduceKind::kSum, empty, {0}), {{}}, {});
}

TEST(Reduce, RandomShapesAndViews) {
  std::mt19937 random(9);
  for (int round = 0; round < 250; ++round) {
    const int rank = 1 + static_cast<int>(random() % 5);
    const Dims dims = check::random_dims(random, rank, 300);
    std::vector<int> order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    if (random() % 4 == 0) std::shuffle(order.begin(), order.end(), random);
    const auto kind = static_cast<ReduceKind>(random() % 12);
    const bool arg = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin;
    std::vector<int64_t> axes;
    for (int d = 0; d < rank; ++d) {
      if (random() % 2 == 0 && !(arg && !axes.empty())) axes.push_back(d);
    }
    if (arg && axes.empty()) axes.push_back(rank - 1);
    const DType type = random() % 5 == 0 ? DType::kInt32 : DType::kFloat32;
    const Problem problem =
        reduce(kind, laid_out(type, dims, order, random() % 3 == 0 ? 2 : 0), axes, random() % 2, random() % 2);
    auto values = random_values(problem, round);
    for (double& value : values[0]) {
      if (kind == ReduceKind::kLogSum && type == DType::kFloat32) value = std::abs(value) + 0.25;
      if (kind == ReduceKind::kProd && type == DType::kFloat32)
        value = value < 0 ? value / 8 - 0.875 : value / 8 + 0.875;
    }
    expect_tactics_match(problem, values, {1e-4, 2e-5}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(Reduce, WhatWasContiguousMayBecomeADimOfOne) {
  const auto check_one = [](const Problem& problem) {
    EXPECT_GE(expect_tactics_match(problem, random_values(problem, 5), {2e-5, 1e-5}, {1, 3}), 1);
  };
  check_one(reduce(ReduceKind::kL2, dense(DType::kFloat32, {1, 1}), {0}, false));
  TensorDesc x = dense(DType::kFloat32, {5, 4, 1});
  x.strides = {80, 20, 1};  // of [5, 4, w] within [5, 4, 20]
  for (int kind = 0; kind < 12; ++kind) check_one(reduce(static_cast<ReduceKind>(kind), x, {1}, false));
  x.strides = {80, 20, 7};
  x.dims = {5, 4, 2};
  for (int kind = 0; kind < 12; ++kind) check_one(reduce(static_cast<ReduceKind>(kind), x, {2}, true, true));
  check_one(reduce(ReduceKind::kMean, x, {0, 2}));
}

TEST(Reduce, ShapesOfModels) {
  const auto check_one = [](const Problem& problem) {
    EXPECT_GE(expect_tactics_match(problem, random_values(problem, 3), {2e-5, 1e-5}), 1);
  };
  check_one(reduce(ReduceKind::kMean, dense(DType::kFloat32, {2, 7, 7, 2048}), {1, 2}));
  check_one(reduce(ReduceKind::kMean, dense(DType::kFloat32, {1, 56, 56, 64}), {1, 2}, false));
  check_one(reduce(ReduceKind::kMean, dense(DType::kFloat32, {1, 64, 56, 56}), {2, 3}));
  check_one(reduce(ReduceKind::kMean, dense(DType::kFloat32, {1, 128, 384}), {1}, false));
  check_one(reduce(ReduceKind::kSum, dense(DType::kFloat32, {26, 64, 16}), {0}, false));
  check_one(reduce(ReduceKind::kL2, dense(DType::kFloat32, {8, 384}), {1}));
  check_one(reduce(ReduceKind::kArgMax, dense(DType::kFloat32, {8, 1000}), {1}));
  check_one(reduce(ReduceKind::kArgMax, dense(DType::kFloat32, {1, 21, 130, 130}), {1}));
}

TEST(Reduce, RefusesInvalidProblems) {
  const TensorDesc x = dense(DType::kFloat32, {2, 3});
  expect_invalid(reduce(ReduceKind::kSum, x, {2}));
  expect_invalid(reduce(ReduceKind::kSum, x, {1, 0}));
  expect_invalid(reduce(ReduceKind::kArgMax, x, {0, 1}));
  expect_invalid(reduce(ReduceKind::kArgMax, dense(DType::kFloat32, {2, 0}), {1}));
  expect_invalid(reduce(static_cast<ReduceKind>(12), x, {1}));
  expect_invalid(reduce(ReduceKind::kSum, dense(DType::kUInt8, {2, 3}), {1}));
  Problem problem = reduce(ReduceKind::kSum, x, {1});
  problem.outputs[0].dims = {2};
  expect_invalid(problem);
}

}  // namespace
}  // namespace flywheel::kernels
