// SPDX-License-Identifier: Apache-2.0
#include "kernels/top_k/top_k.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

Problem top_k(DType dtype, Dims x, int64_t axis, int64_t k, bool largest = true) {
  Problem problem;
  problem.family = Family::kTopK;
  problem.inputs = {TensorDesc::contiguous(dtype, x)};
  x[static_cast<size_t>(axis)] = k;
  problem.outputs = {TensorDesc::contiguous(dtype, x), TensorDesc::contiguous(DType::kInt64, x)};
  problem.ints = {axis, largest ? 1 : 0};
  return problem;
}

template <class T>
void expect(const Problem& problem, const std::vector<T>& x, const std::vector<T>& values,
            const std::vector<int64_t>& places) {
  for (const Tactic& tactic : tactics(Family::kTopK)) {
    for (int workers : {1, 3}) {
      auto kernel = tactic.bind(problem, Machine{}, workers);
      ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
      std::vector<T> y(values.size());
      std::vector<int64_t> at(places.size());
      AlignedBuffer workspace = *AlignedBuffer::allocate((*kernel)->workspace_bytes(), "workspace");
      const void* inputs[] = {x.data()};
      void* outputs[] = {y.data(), at.data()};
      std::atomic<uint32_t> faults{0};
      auto team = ThreadTeam::create(workers);
      (*team)->run([&](Worker& worker) {
        (*kernel)->launch({inputs, outputs, nullptr, workspace.data(), &faults}, worker);
      });
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(y[i] == values[i] || (y[i] != y[i] && values[i] != values[i])) << i << ": " << y[i];
      }
      EXPECT_EQ(at, places) << tactic.name;
    }
  }
}

TEST(TopK, TakesTheLargestAndTheSmallest) {
  expect<float>(top_k(DType::kFloat32, {2, 4}, 1, 3), {0, 1, 2, 3, 7, 6, 5, 4}, {3, 2, 1, 7, 6, 5}, {3, 2, 1, 0, 1, 2});
  expect<float>(top_k(DType::kFloat32, {2, 4}, 1, 2, false), {0, 1, 2, 3, 7, 6, 5, 4}, {0, 1, 4, 5}, {0, 1, 3, 2});
  expect<int32_t>(top_k(DType::kInt32, {3, 2}, 0, 1), {1, 9, 5, 2, 3, 4}, {5, 9}, {1, 0});
  expect<uint64_t>(top_k(DType::kUInt64, {3}, 0, 2), {1, UINT64_MAX, 5}, {UINT64_MAX, 5}, {1, 2});
}

TEST(TopK, EqualOnesComeInTheOrderOfTheirPlaces) {
  expect<float>(top_k(DType::kFloat32, {5}, 0, 3), {1, 2, 2, 1, 2}, {2, 2, 2}, {1, 2, 4});
  expect<float>(top_k(DType::kFloat32, {5}, 0, 5, false), {1, 2, 2, 1, 2}, {1, 1, 2, 2, 2}, {0, 3, 1, 2, 4});
}

TEST(TopK, NanIsLarger) {
  expect<float>(top_k(DType::kFloat32, {4}, 0, 2), {1, NAN, INFINITY, NAN}, {NAN, NAN}, {1, 3});
  expect<float>(top_k(DType::kFloat32, {4}, 0, 3, false), {NAN, 1, NAN, INFINITY}, {1, INFINITY, NAN}, {1, 3, 0});
}

TEST(TopK, MayTakeNone) { expect<float>(top_k(DType::kFloat32, {4}, 0, 0), {1, 2, 3, 4}, {}, {}); }

TEST(TopK, WithoutElementsTheOtherExtentsMayBeAnything) {
  expect<float>(top_k(DType::kFloat32, {int64_t{1} << 30, int64_t{1} << 28, 0}, 2, 0), {}, {}, {});
}

TEST(TopK, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(TopKParams::from(top_k(DType::kFloat32, {4}, 0, 5)).is_ok());
  EXPECT_FALSE(TopKParams::from(top_k(DType::kBool, {4}, 0, 1)).is_ok());
  Problem wrong = top_k(DType::kFloat32, {4}, 0, 1);
  wrong.outputs[1].dtype = DType::kInt32;
  EXPECT_FALSE(TopKParams::from(wrong).is_ok());
  wrong.outputs.pop_back();
  EXPECT_FALSE(TopKParams::from(wrong).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
