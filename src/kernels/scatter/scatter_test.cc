// SPDX-License-Identifier: Apache-2.0
#include "kernels/scatter/scatter.h"

#include <gtest/gtest.h>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

using Floats = std::vector<float>;

Problem scatter(ScatterKind kind, Dims data, Dims indices, Dims updates, int64_t axis = 0,
                ScatterReduction reduction = ScatterReduction::kNone, DType dtype = DType::kFloat32) {
  Problem problem;
  problem.family = Family::kScatter;
  problem.outputs = {TensorDesc::contiguous(dtype, data)};
  problem.inputs = {TensorDesc::contiguous(dtype, std::move(data)),
                    TensorDesc::contiguous(DType::kInt64, std::move(indices)),
                    TensorDesc::contiguous(dtype, std::move(updates))};
  problem.ints = {static_cast<int64_t>(kind), axis, static_cast<int64_t>(reduction)};
  return problem;
}

template <class T>
void expect(const Problem& problem, const std::vector<T>& data, const std::vector<int64_t>& indices,
            const std::vector<T>& updates, const std::vector<T>& expected, uint32_t faults = 0) {
  for (const Tactic& tactic : tactics(Family::kScatter)) {
    for (int workers : {1, 3}) {
      auto kernel = tactic.bind(problem, Machine{}, workers);
      ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
      std::vector<T> y(expected.size(), T(77));
      const void* inputs[] = {data.data(), indices.data(), updates.data()};
      void* outputs[] = {y.data()};
      std::atomic<uint32_t> seen{0};
      auto team = ThreadTeam::create(workers);
      (*team)->run([&](Worker& worker) { (*kernel)->launch({inputs, outputs, nullptr, nullptr, &seen}, worker); });
      EXPECT_EQ(y, expected) << tactic.name;
      EXPECT_EQ(seen.load(), faults) << tactic.name;
    }
  }
}

TEST(Scatter, PutsElements) {
  // The examples of ONNX's definition.
  expect<float>(scatter(ScatterKind::kElements, {3, 3}, {2, 3}, {2, 3}), Floats(9, 0), {1, 0, 2, 0, 2, 1},
                {1.0F, 1.1F, 1.2F, 2.0F, 2.1F, 2.2F}, {2.0F, 1.1F, 0, 1.0F, 0, 2.2F, 0, 2.1F, 1.2F});
  expect<float>(scatter(ScatterKind::kElements, {1, 5}, {1, 2}, {1, 2}, 1), {1, 2, 3, 4, 5}, {1, -2}, {1.1F, 2.1F},
                {1, 1.1F, 3, 2.1F, 5});
}

TEST(Scatter, PutsSlices) {
  expect<float>(scatter(ScatterKind::kNd, {8}, {4, 1}, {4}), {1, 2, 3, 4, 5, 6, 7, 8}, {4, 3, 1, 7}, {9, 10, 11, 12},
                {1, 11, 3, 10, 9, 6, 7, 12});
  expect<float>(scatter(ScatterKind::kNd, {3, 2}, {2, 1}, {2, 2}), {0, 1, 2, 3, 4, 5}, {-1, 0}, {7, 8, 9, 6},
                {9, 6, 2, 3, 7, 8});
  expect<float>(scatter(ScatterKind::kNd, {2, 2}, {1, 0}, {1, 2, 2}), {0, 1, 2, 3}, {}, {4, 5, 6, 7}, {4, 5, 6, 7});
  expect<float>(scatter(ScatterKind::kNd, {2, 2}, {0, 2}, {0}), {0, 1, 2, 3}, {}, {}, {0, 1, 2, 3});
}

TEST(Scatter, TheLastOfSeveralUpdatesStays) {
  expect<float>(scatter(ScatterKind::kNd, {2}, {3, 1}, {3}), {0, 0}, {1, 1, 1}, {5, 6, 7}, {0, 7});
}

TEST(Scatter, Reduces) {
  const Dims data{3}, indices{4, 1}, updates{4};
  auto problem = [&](ScatterReduction reduction, DType dtype) {
    return scatter(ScatterKind::kNd, data, indices, updates, 0, reduction, dtype);
  };
  const std::vector<int64_t> at{0, 2, 0, 2};
  expect<float>(problem(ScatterReduction::kAdd, DType::kFloat32), {1, 2, 3}, at, {4, 5, 6, 7}, {11, 2, 15});
  expect<float>(problem(ScatterReduction::kMul, DType::kFloat32), {1, 2, 3}, at, {4, 5, 6, 7}, {24, 2, 105});
  expect<int64_t>(problem(ScatterReduction::kMax, DType::kInt64), {1, 2, 3}, at, {-4, 5, 6, 7}, {6, 2, 7});
  expect<int32_t>(problem(ScatterReduction::kMin, DType::kInt32), {1, 2, 3}, at, {-4, 5, 6, 7}, {-4, 2, 3});
  expect<uint8_t>(problem(ScatterReduction::kAdd, DType::kUInt8), {200, 2, 3}, at, {100, 5, 6, 7}, {50, 2, 15});
  expect<double>(problem(ScatterReduction::kAdd, DType::kFloat64), {1, 2, 3}, at, {1e-12, 5, 6, 7},
                 {1 + 1e-12 + 6, 2, 15});
}

TEST(Scatter, AnIndexOutOfRangeIsAFaultAndChangesNothing) {
  expect<float>(scatter(ScatterKind::kNd, {3}, {2, 1}, {2}), {1, 2, 3}, {3, 1}, {8, 9}, {1, 9, 3}, kIndexOutOfRange);
  expect<float>(scatter(ScatterKind::kElements, {3}, {2}, {2}), {1, 2, 3}, {INT64_MIN, 1}, {8, 9}, {1, 9, 3},
                kIndexOutOfRange);
}

TEST(Scatter, WithoutUpdatesTheirExtentsMayBeAnything) {
  const int64_t large = int64_t{1} << 28;
  expect<float>(scatter(ScatterKind::kNd, {2, 0}, {large, large, 0}, {large, large, 2, 0}), {}, {}, {}, {});
}

TEST(Scatter, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(ScatterParams::from(scatter(ScatterKind::kNd, {3}, {2, 2}, {2})).is_ok());
  EXPECT_FALSE(ScatterParams::from(scatter(ScatterKind::kNd, {3}, {2, 1}, {3})).is_ok());
  EXPECT_FALSE(ScatterParams::from(scatter(ScatterKind::kElements, {3}, {2}, {2}, 1)).is_ok());
  EXPECT_FALSE(ScatterParams::from(scatter(ScatterKind::kElements, {3, 2}, {2, 3}, {2, 3}, 0)).is_ok());
  Problem strided = scatter(ScatterKind::kNd, {3, 2}, {1, 1}, {1, 2});
  strided.inputs[0].strides = {4, 1};
  EXPECT_FALSE(ScatterParams::from(strided).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
