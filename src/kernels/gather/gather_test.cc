// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gather.h"

#include <gtest/gtest.h>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

Problem gather(GatherKind kind, Dims data, Dims indices, Dims y, int64_t axis, int64_t batch_dims = 0) {
  Problem problem;
  problem.family = Family::kGather;
  problem.inputs = {TensorDesc::contiguous(DType::kFloat32, std::move(data)),
                    TensorDesc::contiguous(DType::kInt64, std::move(indices))};
  problem.outputs = {TensorDesc::contiguous(DType::kFloat32, std::move(y))};
  problem.constant = {false, false};
  problem.ints = {static_cast<int64_t>(kind), axis, batch_dims};
  return problem;
}

std::vector<float> counting(int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<float>(i));
  return out;
}

// Every tactic that accepts gives `expected` and `faults`, with one worker and three.
void expect_all(const Problem& problem, const std::vector<int64_t>& indices, const std::vector<float>& expected,
                uint32_t faults = 0) {
  const std::vector<float> data = counting(problem.inputs[0].elements());
  int ran = 0;
  for (const Tactic& tactic : tactics(Family::kGather)) {
    if (!tactic.accepts(problem, Machine{}).is_ok()) continue;
    for (int workers : {1, 3}) {
      auto kernel = tactic.bind(problem, Machine{}, workers);
      ASSERT_TRUE(kernel.is_ok()) << kernel.status().to_string();
      std::vector<float> y(expected.size(), -1);
      const void* inputs[] = {data.data(), indices.data()};
      void* outputs[] = {y.data()};
      std::atomic<uint32_t> seen{0};
      auto team = ThreadTeam::create(workers);
      (*team)->run([&](Worker& worker) { (*kernel)->launch({inputs, outputs, nullptr, nullptr, &seen}, worker); });
      EXPECT_EQ(y, expected) << tactic.name;
      EXPECT_EQ(seen.load(), faults) << tactic.name;
      ++ran;
    }
  }
  EXPECT_GE(ran, 2);
}

TEST(Gather, TakesRows) {
  expect_all(gather(GatherKind::kGather, {3, 2}, {2, 2}, {2, 2, 2}, 0), {2, 0, 1, -1}, {4, 5, 0, 1, 2, 3, 4, 5});
  expect_all(gather(GatherKind::kGather, {2, 3}, {2}, {2, 2}, 1), {2, 0}, {2, 0, 5, 3});
  expect_all(gather(GatherKind::kGather, {2, 3}, {}, {2}, 1), {1}, {1, 4});
  expect_all(gather(GatherKind::kGather, {2, 2, 2}, {1}, {2, 1, 2}, 1), {1}, {2, 3, 6, 7});
}

TEST(Gather, TakesElements) {
  expect_all(gather(GatherKind::kElements, {2, 2}, {2, 2}, {2, 2}, 1), {0, 0, 1, 0}, {0, 0, 3, 2});
  expect_all(gather(GatherKind::kElements, {3, 3}, {2, 3}, {2, 3}, 0), {1, 2, 0, 2, 0, -3}, {3, 7, 2, 6, 1, 2});
}

TEST(Gather, TakesNd) {
  expect_all(gather(GatherKind::kNd, {2, 2}, {2, 2}, {2}, 0), {0, 0, 1, 1}, {0, 3});
  expect_all(gather(GatherKind::kNd, {2, 2}, {2, 1}, {2, 2}, 0), {1, 0}, {2, 3, 0, 1});
  expect_all(gather(GatherKind::kNd, {2, 2, 2}, {2, 1}, {2, 2}, 0, 1), {1, 0}, {2, 3, 4, 5});
}

TEST(Gather, AnIndexOutOfRangeIsAFaultAndGivesZeros) {
  expect_all(gather(GatherKind::kGather, {3, 2}, {3}, {3, 2}, 0), {1, 3, 2}, {2, 3, 0, 0, 4, 5}, kIndexOutOfRange);
  expect_all(gather(GatherKind::kGather, {3, 2}, {1}, {1, 2}, 0), {-4}, {0, 0}, kIndexOutOfRange);
  expect_all(gather(GatherKind::kElements, {2, 2}, {1, 2}, {1, 2}, 0), {0, INT64_MIN}, {0, 0}, kIndexOutOfRange);
  expect_all(gather(GatherKind::kNd, {2, 2}, {1, 2}, {1}, 0), {1, 2}, {0}, kIndexOutOfRange);
}

TEST(Gather, WritesIntoViews) {
  Problem problem = gather(GatherKind::kGather, {3, 2}, {2}, {2, 2}, 0);
  problem.outputs[0].strides = {4, 1};
  for (const Tactic& tactic : tactics(Family::kGather)) {
    auto kernel = tactic.bind(problem, Machine{}, 1);
    ASSERT_TRUE(kernel.is_ok());
    const std::vector<float> data = counting(6);
    const std::vector<int64_t> indices{2, 1};
    std::vector<float> y(8, -1);
    const void* inputs[] = {data.data(), indices.data()};
    void* outputs[] = {y.data()};
    std::atomic<uint32_t> faults{0};
    Worker alone = Worker::alone();
    (*kernel)->launch({inputs, outputs, nullptr, nullptr, &faults}, alone);
    EXPECT_EQ(y, (std::vector<float>{4, 5, -1, -1, 2, 3, -1, -1})) << tactic.name;
  }
}

TEST(Gather, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(GatherParams::from(gather(GatherKind::kGather, {3, 2}, {2}, {2, 3}, 0)).is_ok());
  EXPECT_FALSE(GatherParams::from(gather(GatherKind::kGather, {3, 2}, {2}, {2, 2}, 2)).is_ok());
  EXPECT_FALSE(GatherParams::from(gather(GatherKind::kElements, {3, 2}, {2}, {2}, 0)).is_ok());
  EXPECT_FALSE(GatherParams::from(gather(GatherKind::kNd, {2, 2}, {1, 3}, {1}, 0)).is_ok());
  Problem wrong = gather(GatherKind::kGather, {3, 2}, {2}, {2, 2}, 0);
  wrong.inputs[1].dtype = DType::kFloat32;
  EXPECT_FALSE(GatherParams::from(wrong).is_ok());
}

}  // namespace
}  // namespace flywheel::kernels
