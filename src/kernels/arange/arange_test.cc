// SPDX-License-Identifier: Apache-2.0
#include "kernels/arange/arange.h"

#include <gtest/gtest.h>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

Problem arange(DType dtype, int64_t count, std::vector<int64_t> ints, std::vector<double> floats) {
  Problem problem;
  problem.family = Family::kArange;
  problem.outputs = {TensorDesc::contiguous(dtype, {count})};
  problem.ints = std::move(ints);
  problem.floats = std::move(floats);
  return problem;
}

template <class T>
std::vector<T> run(const Problem& problem, int workers) {
  const Tactic& tactic = tactics(Family::kArange).back();
  auto kernel = tactic.bind(problem, Machine{}, workers);
  EXPECT_TRUE(kernel.is_ok()) << kernel.status().to_string();
  auto team = ThreadTeam::create(workers);
  std::vector<T> out(static_cast<size_t>(problem.outputs[0].dims[0]));
  void* outputs[] = {out.data()};
  std::atomic<uint32_t> faults{0};
  (*team)->run([&](Worker& worker) { (*kernel)->launch({nullptr, outputs, nullptr, nullptr, &faults}, worker); });
  return out;
}

TEST(Arange, Counts) {
  EXPECT_EQ(run<int64_t>(arange(DType::kInt64, 4, {10, -3}, {}), 2), (std::vector<int64_t>{10, 7, 4, 1}));
  EXPECT_EQ(run<int32_t>(arange(DType::kInt32, 3, {0, 1}, {}), 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(run<float>(arange(DType::kFloat32, 3, {}, {0.5, 0.25}), 1), (std::vector<float>{0.5F, 0.75F, 1.0F}));
  EXPECT_EQ(run<double>(arange(DType::kFloat64, 0, {}, {1, 1}), 1), (std::vector<double>{}));
}

TEST(Arange, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(check_arange(arange(DType::kInt64, 4, {}, {0, 1})).is_ok());
  EXPECT_FALSE(check_arange(arange(DType::kInt64, 3, {INT64_MAX, 1}, {})).is_ok());
  EXPECT_FALSE(check_arange(arange(DType::kBool, 3, {0, 1}, {})).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
