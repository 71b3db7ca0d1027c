// SPDX-License-Identifier: Apache-2.0
// The comparer of `flywheel verify` and the statistics of `flywheel bench`.
#include "runtime/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/test_plan.h"
#include "runtime/benchmark.h"
#include "runtime/engine_impl.h"

namespace flywheel::runtime {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

template <class T>
Difference compare(DType dtype, const std::vector<T>& got, const std::vector<T>& want) {
  return compare_arrays(dtype, std::as_bytes(std::span(got)), std::as_bytes(std::span(want)), {1e-3, 0});
}

TEST(CompareArrays, JudgesByTheLargestValue) {
  const Difference close = compare<float>(DType::kFloat32, {100, 0.09f, -1}, {100, 0, -1});
  EXPECT_TRUE(close.agrees());
  EXPECT_EQ(close.elements, 3);
  EXPECT_EQ(close.worst, 1);
  EXPECT_FLOAT_EQ(static_cast<float>(close.largest_error), 0.09f);
  EXPECT_NEAR(close.relative(), 0.0009, 1e-9);

  const Difference far = compare<float>(DType::kFloat32, {100, 0.2f, -1, 7}, {100, 0, -1, 0});
  EXPECT_FALSE(far.agrees());
  EXPECT_EQ(far.outside, 2);
  EXPECT_EQ(far.worst, 1);  // the first that is outside, though the last is further off
  EXPECT_EQ(far.largest_error, 7);
  EXPECT_EQ(far.want, 0);
}

TEST(CompareArrays, EqualArraysHaveNoError) {
  const Difference same = compare<float>(DType::kFloat32, {1, kNan, kInf, -0.0f}, {1, kNan, kInf, 0.0f});
  EXPECT_TRUE(same.agrees());
  EXPECT_EQ(same.largest_error, 0);
  EXPECT_EQ(same.relative(), 0);
  EXPECT_TRUE(compare<float>(DType::kFloat32, {}, {}).agrees());
}

TEST(CompareArrays, NanAndInfinityMustStandInTheSamePlaces) {
  EXPECT_EQ(compare<float>(DType::kFloat32, {kNan}, {1}).outside, 1);
  EXPECT_EQ(compare<float>(DType::kFloat32, {1}, {kNan}).outside, 1);
  EXPECT_EQ(compare<float>(DType::kFloat32, {1, 2}, {kInf, 2}).outside, 1);
  EXPECT_EQ(compare<float>(DType::kFloat32, {-kInf}, {kInf}).outside, 1);
  // An infinity elsewhere must not widen the tolerance.
  EXPECT_EQ(compare<float>(DType::kFloat32, {kInf, 5}, {kInf, 1}).outside, 1);
}

TEST(CompareArrays, IntegersMustBeEqual) {
  EXPECT_EQ(compare<int64_t>(DType::kInt64, {int64_t{1} << 60, 3}, {(int64_t{1} << 60) + 1, 3}).outside, 1);
  EXPECT_TRUE(compare<int32_t>(DType::kInt32, {1, -2}, {1, -2}).agrees());
}

TEST(CompareSteps, NamesTheStepThatDiffers) {
  auto engine = EngineImpl::from_plan(engine::copy_plan(), {});
  ASSERT_TRUE(engine.is_ok());
  engine::Plan other_plan = engine::copy_plan();
  other_plan.steps[0].output_names = {"z"};
  auto other = EngineImpl::from_plan(other_plan, {});
  ASSERT_TRUE(other.is_ok());
  auto context = (*engine)->create_context({1}), same = (*engine)->create_context({2}),
       different = (*other)->create_context({1});
  ASSERT_TRUE(context.is_ok() && same.is_ok() && different.is_ok());
  std::vector<float> x(8);
  std::iota(x.begin(), x.end(), 1.0f);
  const void* inputs[] = {x.data()};
  auto agreeing = compare_steps(**context, **same, inputs);
  ASSERT_TRUE(agreeing.is_ok()) << agreeing.status().to_string();
  ASSERT_EQ(agreeing->size(), 1u);
  EXPECT_TRUE((*agreeing)[0].agrees());
  EXPECT_EQ((*agreeing)[0].value, "y");
  EXPECT_EQ((*agreeing)[0].shape, "f32 2x4");
  EXPECT_EQ((*agreeing)[0].difference.elements, 8);

  auto unmatched = compare_steps(**context, **different, inputs);
  ASSERT_TRUE(unmatched.is_ok());
  EXPECT_EQ((*unmatched)[0].mismatch, "the reference does not compute it");

  ASSERT_TRUE((*same)->set_shape(0, {1, 4}).is_ok());
  auto shapes = compare_steps(**context, **same, inputs);
  ASSERT_TRUE(shapes.is_ok());
  EXPECT_EQ((*shapes)[0].mismatch, "the reference has f32 1x4");
}

TEST(Summarize, TakesPercentilesByNearestRank) {
  std::vector<double> latencies(200);
  std::iota(latencies.rbegin(), latencies.rend(), 1.0);
  const LatencySummary summary = summarize(latencies);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.mean, 100.5);
  EXPECT_EQ(summary.p50, 100);
  EXPECT_EQ(summary.p90, 180);
  EXPECT_EQ(summary.p95, 190);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.max, 200);
  std::vector<double> one = {3};
  EXPECT_EQ(summarize(one).p99, 3);
  std::vector<double> none;
  EXPECT_EQ(summarize(none).max, 0);
}

TEST(Benchmark, CountsItsRunsAndKeepsTheContextUsable) {
  auto engine = EngineImpl::from_plan(engine::copy_plan(), {});
  ASSERT_TRUE(engine.is_ok());
  auto context = (*engine)->create_context({1});
  ASSERT_TRUE(context.is_ok());
  std::vector<float> x(8, 2), y(8);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  auto result = benchmark(**context, inputs, outputs, {0, 0, 25});
  ASSERT_TRUE(result.is_ok()) << result.status().to_string();
  EXPECT_EQ(result->runs, 25);
  EXPECT_EQ(y, x);
  auto steps = measure_steps(**context, inputs, outputs, {0, 0, 5});
  ASSERT_TRUE(steps.is_ok());
  EXPECT_EQ(steps->size(), 1u);
}

}  // namespace
}  // namespace flywheel::runtime
