// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/testing/tactic_check.h"

namespace flywheel::kernels {
namespace {

using check::dense;
using check::expect_invalid;
using check::expect_tactics_match;
using check::expect_values;
using check::laid_out;
using check::random_values;

Problem pointwise(const std::string& program, std::vector<TensorDesc> inputs, TensorDesc output) {
  const int count = static_cast<int>(inputs.size());
  return {.family = Family::kPointwise,
          .inputs = std::move(inputs),
          .outputs = {std::move(output)},
          .program = Program::parse(program, count).value()};
}

TEST(Pointwise, BroadcastsAsNumPy) {
  const Problem problem =
      pointwise("r2 = add r0 r1 -> r2", {dense(DType::kFloat32, {2, 1}), dense(DType::kFloat32, {3})},
                dense(DType::kFloat32, {2, 3}));
  expect_values(problem, {{10, 20}, {1, 2, 3}}, {11, 12, 13, 21, 22, 23});
}

TEST(Pointwise, GivesKnownValues) {
  const TensorDesc six = dense(DType::kFloat32, {6});
  const std::vector<double> x = {-2, -0.5, 0, 0.5, 1, 3};
  auto expect = [&](const char* program, const std::vector<double>& expected) {
    expect_values(pointwise(program, {six}, six), {x}, expected);
  };
  expect("r1 = relu r0 -> r1", {0, 0, 0, 0.5, 1, 3});
  expect("r1 = sigmoid r0 -> r1", {0.11920292, 0.37754067, 0.5, 0.62245933, 0.73105858, 0.95257413});
  expect("r1 = tanh r0 -> r1", {-0.96402758, -0.46211716, 0, 0.46211716, 0.76159416, 0.99505475});
  expect("r1 = gelu_erf r0 -> r1", {-0.04550026, -0.15426877, 0, 0.34573123, 0.84134475, 2.99595031});
  expect("r1 = gelu_tanh r0 -> r1", {-0.04540231, -0.15428599, 0, 0.34571401, 0.84119199, 2.99636261});
  expect("r1 = silu r0 -> r1", {-0.23840584, -0.18877033, 0, 0.31122967, 0.73105858, 2.85772238});
  expect("r1 = mish r0 -> r1", {-0.25250148, -0.22074413, 0, 0.37524524, 0.86509839, 2.98653539});
  expect("r1 = hard_swish r0 -> r1", {-0.33333333, -0.20833333, 0, 0.29166667, 0.66666667, 3});
  expect("r1 = elu r0 1 -> r1", {-0.86466472, -0.39346934, 0, 0.5, 1, 3});
  expect("r1 = softplus r0 -> r1", {0.12692801, 0.47407698, 0.69314718, 0.97407698, 1.31326169, 3.04858735});
  expect("r1 = exp r0 -> r1", {0.13533528, 0.60653066, 1, 1.64872127, 2.71828183, 20.08553692});
  expect("r1 = erf r0 -> r1", {-0.99532227, -0.52049988, 0, 0.52049988, 0.84270079, 0.99997791});
  expect("r1 = sin r0 -> r1", {-0.90929743, -0.47942554, 0, 0.47942554, 0.84147098, 0.14112001});
  expect("r1 = clip r0 -1 0.75 -> r1", {-1, -0.5, 0, 0.5, 0.75, 0.75});
  expect("r1 = round r0 -> r1", {-2, 0, 0, 0, 1, 3});
}

TEST(Pointwise, PropagatesNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const TensorDesc four = dense(DType::kFloat32, {4});
  const std::vector<double> x = {nan, 1, 2, nan}, y = {1, nan, 1, nan};
  expect_values(pointwise("r2 = max r0 r1 -> r2", {four, four}, four), {x, y}, {nan, nan, 2, nan});
  expect_values(pointwise("r2 = min r0 r1 -> r2", {four, four}, four), {x, y}, {nan, nan, 1, nan});
  expect_values(pointwise("r1 = relu r0 -> r1", {four}, four), {x}, {nan, 1, 2, nan});
  expect_values(pointwise("r1 = clip r0 0 1 -> r1", {four}, four), {x}, {nan, 1, 1, nan});
  expect_values(pointwise("r1 = is_nan r0 -> r1", {four}, dense(DType::kBool, {4})), {x}, {1, 0, 0, 1});
}

TEST(Pointwise, ComputesInIntegers) {
  const TensorDesc five = dense(DType::kInt64, {5});
  const std::vector<double> a = {7, -7, 7, -7, 5}, b = {3, 3, -3, -3, 0};
  auto expect = [&](const char* program, const std::vector<double>& expected) {
    expect_values(pointwise(program, {five, five}, five), {a, b}, expected);
  };
  expect("i64: r2 = div r0 r1 -> r2", {2, -2, -2, 2, 0});
  expect("i64: r2 = mod r0 r1 -> r2", {1, 2, -2, -1, 0});
  expect("i64: r2 = fmod r0 r1 -> r2", {1, -1, 1, -1, 0});
  expect("i64: r2 = pow r0 r1 -> r2", {343, -343, 0, 0, 1});
  expect("i64: r2 = mul r0 r1; r3 = add_imm r2 100 -> r3", {121, 79, 79, 121, 100});
  expect("i64: r2 = where r1 r0 r1 -> r2", {7, -7, 7, -7, 0});
  // Above 2^53, where doubles would round.
  const TensorDesc one = dense(DType::kInt64, {1});
  Problem square = pointwise("i64: r1 = mul r0 r0; r2 = mod r1 r0; r3 = add_imm r2 1 -> r3", {one}, one);
  expect_values(square, {{3037000499.0}}, {1});
}

TEST(Pointwise, ConvertsEveryType) {
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      for (const char* program : {"-> r0", "f64: -> r0", "i64: -> r0"}) {
        Problem problem =
            pointwise(program, {dense(static_cast<DType>(from), {77})}, dense(static_cast<DType>(to), {77}));
        auto values = random_values(problem, 5);
        expect_tactics_match(problem, values, {0, 0}, {1});
      }
    }
  }
}

TEST(Pointwise, ConversionsTruncateAndSaturate) {
  const TensorDesc in = dense(DType::kFloat32, {6});
  const std::vector<double> x = {-1.9, 1.9, 300, -300, 1e20, std::numeric_limits<double>::quiet_NaN()};
  expect_values(pointwise("-> r0", {in}, dense(DType::kInt8, {6})), {x}, {-1, 1, 127, -128, 127, -128});
  expect_values(pointwise("-> r0", {in}, dense(DType::kUInt8, {6})), {x}, {0, 1, 255, 0, 255, 0});
  expect_values(pointwise("-> r0", {in}, dense(DType::kBool, {6})), {x}, {1, 1, 1, 1, 1, 1});
  expect_values(pointwise("-> r0", {dense(DType::kFloat32, {3})}, dense(DType::kFloat16, {3})),
                {{1e-7, 70000, 1.0004883}}, {1.1920929e-7, INFINITY, 1});
  expect_values(pointwise("-> r0", {dense(DType::kFloat32, {2})}, dense(DType::kBFloat16, {2})),
                {{1.00390625, 1.01171875}}, {1, 1.015625});
}

TEST(Pointwise, RandomShapesStridesAndTypes) {
  std::mt19937 random(11);
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat32,
                              DType::kInt32,   DType::kBool,    DType::kFloat16};
  const char* programs[] = {"r1 = relu r0 -> r1", "r2 = add r0 r1; r3 = relu r2 -> r3", "r3 = where r0 r1 r2 -> r3",
                            "r3 = mul r0 r1; r4 = sub r3 r2; r5 = sigmoid r4 -> r5"};
  const int arity[] = {1, 2, 3, 3};
  for (int round = 0; round < 150; ++round) {
    const int rank = static_cast<int>(random() % 5);
    Dims dims;
    for (int d = 0; d < rank; ++d) dims.push_back(random() % 25 == 0 ? 0 : 1 + random() % (d + 1 == rank ? 70 : 9));
    auto layout = [&](DType type, const Dims& extents) {
      std::vector<int> order(extents.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      if (random() % 3 == 0) std::shuffle(order.begin(), order.end(), random);
      TensorDesc desc = laid_out(type, extents, order, random() % 3 == 0 ? 3 : 0);
      if (random() % 6 == 0 && !desc.strides.empty()) desc.strides[0] = -desc.strides[0];
      return desc;
    };
    const size_t pick = random() % std::size(programs);
    std::vector<TensorDesc> inputs;
    for (int i = 0; i < arity[pick]; ++i) {
      Dims extents = dims;
      for (int64_t& extent : extents) {
        if (random() % 4 == 0) extent = 1;
      }
      if (random() % 4 == 0) extents.erase(extents.begin(), extents.begin() + random() % (extents.size() + 1));
      inputs.push_back(layout(kTypes[random() % std::size(kTypes)], extents));
    }
    Problem problem =
        pointwise(programs[pick], inputs, layout(random() % 4 ? DType::kFloat32 : kTypes[random() % 6], dims));
    const bool rounds = problem.outputs[0].dtype == DType::kFloat16;
    if (!is_float(problem.outputs[0].dtype) && pick == 3) continue;  // truncation makes small differences big
    expect_tactics_match(problem, random_values(problem, round), {rounds ? 1e-3 : 2e-6, rounds ? 1e-6 : 1e-6}, {1, 3});
    if (HasFailure()) return;
  }
}

TEST(Pointwise, ShapesOfModels) {
  const TensorDesc hidden = dense(DType::kFloat32, {1, 128, 768});
  Problem residual = pointwise("r2 = add r0 r1 -> r2", {hidden, hidden}, hidden);
  EXPECT_GE(expect_tactics_match(residual, random_values(residual, 1), {0, 0}), 1);
  const TensorDesc wide = dense(DType::kFloat32, {1, 128, 3072});
  Problem gelu = pointwise("r2 = add r0 r1; r3 = gelu_erf r2 -> r3", {wide, dense(DType::kFloat32, {3072})}, wide);
  EXPECT_GE(expect_tactics_match(gelu, random_values(gelu, 1), {1e-6, 1e-6}), 1);
  // (1 - mask) * -10000 of a BERT attention mask.
  Problem mask = pointwise("r1 = neg r0; r2 = add_imm r1 1; r3 = mul_imm r2 -10000 -> r3",
                           {dense(DType::kInt64, {8, 1, 1, 128})}, dense(DType::kFloat32, {8, 1, 1, 128}));
  EXPECT_GE(expect_tactics_match(mask, random_values(mask, 1), {0, 0}), 1);
  // A uint8 NHWC image to NCHW floats, normalized by channel.
  Problem image = pointwise("r3 = sub r0 r1; r4 = div r3 r2 -> r4",
                            {TensorDesc{DType::kUInt8, {2, 3, 56, 56}, {3 * 56 * 56, 1, 56 * 3, 3}},
                             dense(DType::kFloat32, {3, 1, 1}), dense(DType::kFloat32, {3, 1, 1})},
                            dense(DType::kFloat32, {2, 3, 56, 56}));
  auto values = random_values(image, 1);
  values[2] = {0.25, 0.5, 2};
  EXPECT_GE(expect_tactics_match(image, values, {1e-6, 0}), 1);
  Problem boxes = pointwise("r2 = mul r0 r1 -> r2", {dense(DType::kFloat32, {1, 8400, 4}), dense(DType::kFloat32, {4})},
                            dense(DType::kFloat32, {1, 8400, 4}));
  EXPECT_GE(expect_tactics_match(boxes, random_values(boxes, 1), {0, 0}), 1);
}

TEST(Pointwise, RefusesInvalidProblems) {
  const TensorDesc two = dense(DType::kFloat32, {2}), three = dense(DType::kFloat32, {3});
  expect_invalid(pointwise("r1 = relu r0 -> r1", {two}, three));
  expect_invalid(pointwise("r1 = relu r0 -> r1", {two}, TensorDesc{DType::kFloat32, {2}, {0}}));
  Problem problem = pointwise("r1 = relu r0 -> r1", {two}, two);
  problem.inputs.push_back(two);
  expect_invalid(problem);
  problem = pointwise("r1 = relu r0 -> r1", {two}, two);
  problem.outputs.clear();
  expect_invalid(problem);
}

}  // namespace
}  // namespace flywheel::kernels
