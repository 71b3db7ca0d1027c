// SPDX-License-Identifier: Apache-2.0
#include "kernels/cumulative/cumulative.h"

#include <gtest/gtest.h>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

Problem cumulative(DType dtype, const Dims& dims, int64_t axis, bool exclusive = false, bool reverse = false) {
  Problem problem;
  problem.family = Family::kCumulative;
  problem.inputs = problem.outputs = {TensorDesc::contiguous(dtype, dims)};
  problem.ints = {axis, exclusive ? 1 : 0, reverse ? 1 : 0};
  return problem;
}

template <class T>
void expect(const Problem& problem, const std::vector<T>& x, const std::vector<T>& expected) {
  for (const Tactic& tactic : tactics(Family::kCumulative)) {
    for (int workers : {1, 3}) {
      auto kernel = tactic.bind(problem, Machine{}, workers);
      ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
      std::vector<T> y(expected.size());
      const void* inputs[] = {x.data()};
      void* outputs[] = {y.data()};
      std::atomic<uint32_t> faults{0};
      auto team = ThreadTeam::create(workers);
      (*team)->run([&](Worker& worker) { (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, worker); });
      EXPECT_EQ(y, expected) << tactic.name;
    }
  }
}

TEST(Cumulative, SumsInFourWays) {
  const std::vector<float> x{1, 2, 3};
  expect<float>(cumulative(DType::kFloat32, {3}, 0), x, {1, 3, 6});
  expect<float>(cumulative(DType::kFloat32, {3}, 0, true), x, {0, 1, 3});
  expect<float>(cumulative(DType::kFloat32, {3}, 0, false, true), x, {6, 5, 3});
  expect<float>(cumulative(DType::kFloat32, {3}, 0, true, true), x, {5, 3, 0});
}

TEST(Cumulative, AlongAnyAxis) {
  const std::vector<int32_t> x{1, 2, 3, 4, 5, 6};
  expect<int32_t>(cumulative(DType::kInt32, {2, 3}, 0), x, {1, 2, 3, 5, 7, 9});
  expect<int32_t>(cumulative(DType::kInt32, {2, 3}, 1), x, {1, 3, 6, 4, 9, 15});
  expect<int32_t>(cumulative(DType::kInt32, {2, 0}, 1), {}, {});
}

TEST(Cumulative, WithoutElementsTheOtherExtentsMayBeAnything) {
  expect<int32_t>(cumulative(DType::kInt32, {int64_t{1} << 30, int64_t{1} << 28, 0}, 2), {}, {});
}

TEST(Cumulative, SumsFloatsAsDoubles) {
  expect<float>(cumulative(DType::kFloat32, {4}, 0), {16777216, 1, 1, -16777216}, {16777216, 16777216, 16777218, 2});
}

TEST(Cumulative, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(CumulativeParams::from(cumulative(DType::kBool, {3}, 0)).is_ok());
  EXPECT_FALSE(CumulativeParams::from(cumulative(DType::kFloat32, {3}, 1)).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
