// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/interpret.h"

#include <gtest/gtest.h>

#include "compiler/ir/text.h"

namespace flywheel::lower {
namespace {

ir::ConstTensor counting(Dims dims) {
  std::vector<float> values(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return ir::ConstTensor::from<float>(DType::kFloat32, std::move(dims), values);
}

// The values of the only output.
std::vector<double> run(const std::string& text, const std::vector<ir::ConstTensor>& inputs) {
  auto graph = ir::parse(text);
  EXPECT_TRUE(graph.is_ok()) << graph.status().to_string();
  auto outputs = interpret(*graph.value(), inputs);
  EXPECT_TRUE(outputs.is_ok()) << outputs.status().to_string();
  std::vector<double> values;
  for (int64_t i = 0; i < outputs.value()[0].elements(); ++i) values.push_back(outputs.value()[0].as_double(i));
  return values;
}

using Values = std::vector<double>;

TEST(Interpret, SliceFromASymbolicEnd) {
  const std::string text = R"(graph @g {
  input %x: f32[m]
  input %like: f32[n]
  %y = Slice(%x) {starts: dims[-n], ends: dims[m], axes: [0], steps: [1]}
  output %y as "y"
})";
  EXPECT_EQ(run(text, {counting({5}), counting({2})}), (Values{3, 4}));
}

TEST(Interpret, SliceTakesPlainIntegers) {
  const std::string text = R"(graph @g {
  input %x: f32[2, m]
  %y = Slice(%x) {starts: [-1, -9], ends: [-9, 2], axes: [0, 1], steps: [-1, 1]}
  output %y as "y"
})";
  EXPECT_EQ(run(text, {counting({2, 5})}), (Values{5, 6, 0, 1}));
}

TEST(Interpret, SliceWithoutAxesAndSteps) {
  const std::string text = R"(graph @g {
  input %x: f32[m, 2]
  %y = Slice(%x) {starts: dims[1, 1], ends: dims[3, 2]}
  output %y as "y"
})";
  EXPECT_EQ(run(text, {counting({4, 2})}), (Values{3, 5}));
}

TEST(Interpret, ReshapeOfASliceWithADimOfExtentOne) {
  const std::string text = R"(graph @g {
  input %x: f32[n, 2, 1, 3]
  %a = Slice(%x) {starts: [1], ends: [3], axes: [3]}
  %y = Reshape(%a) {shape: dims[n, 4]}
  output %y as "y"
})";
  EXPECT_EQ(run(text, {counting({2, 2, 1, 3})}), (Values{1, 2, 4, 5, 7, 8, 10, 11}));
}

TEST(Interpret, PadAndTileTakePlainIntegers) {
  EXPECT_EQ(run(R"(graph @g {
  input %x: f32[m]
  %y = Pad(%x) {pads: [1, 2], value: 9.0}
  output %y as "y"
})",
                {counting({2})}),
            (Values{9, 0, 1, 9, 9}));
  EXPECT_EQ(run(R"(graph @g {
  input %x: f32[m]
  %y = Tile(%x) {repeats: [2]}
  output %y as "y"
})",
                {counting({2})}),
            (Values{0, 1, 0, 1}));
}

TEST(Interpret, WhatMovesByIndexOrValue) {
  EXPECT_EQ(run(R"(graph @g {
  input %x: f32[m, 3]
  %v, %i = TopK(%x) {k: 2, axis: 1}
  %c = CumSum(%v) {axis: 0, reverse: 1}
  output %c as "y"
})",
                {counting({2, 3})}),
            (Values{7, 5, 5, 4}));
  EXPECT_EQ(run(R"(graph @g {
  input %x: f32[m, 3]
  %at, %i = TopK(%x) {k: 1, axis: 1, largest: 0}
  %s = Squeeze(%i) {axes: [1]}
  %u = Unsqueeze(%s) {axes: [1]}
  %row = Reshape(%at) {shape: dims[m]}
  %sum = ReduceSum(%x) {axes: [1], keepdims: 0}
  %y = ScatterND(%sum, %u, %row) {reduction: "add"}
  output %y as "y"
})",
                {counting({1, 3})}),
            (Values{3}));
}

TEST(Interpret, RangeTakesPlainAndSymbolicStarts) {
  const std::string text = R"(graph @g {
  input %x: f32[m]
  %y = Range() {start: START, step: STEP, count: dims[m], dtype: 7}
  output %y as "y"
})";
  std::string plain = text, symbolic = text;
  plain.replace(plain.find("START"), 5, "3");
  plain.replace(plain.find("STEP"), 4, "2");
  symbolic.replace(symbolic.find("START"), 5, "dims[m + 1]");
  symbolic.replace(symbolic.find("STEP"), 4, "dims[m]");
  EXPECT_EQ(run(plain, {counting({3})}), (Values{3, 5, 7}));
  EXPECT_EQ(run(symbolic, {counting({3})}), (Values{4, 7, 10}));
}

}  // namespace
}  // namespace flywheel::lower
