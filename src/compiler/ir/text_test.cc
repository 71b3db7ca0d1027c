// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/verify.h"

namespace flywheel::ir {
namespace {

constexpr std::string_view kEverything = R"(# all there is
graph @classifier {
  input %x: f32[batch, 3, 224, 224]
  input %"odd name: ä\n": i64['batch size', floor((n + 1) / 2), min(n, 7)]
  const %w: f32[64, 3, 7, 7] = random(seed=1, mean=0, std=0.1)
  const %three: f32[3] = [1, -2.5, 1e-7]
  const %scalar: i32[] = [7]
  const %empty: f32[0, 4] = []
  const %flat: f16[2, 2] = splat(0.5)
  const %mask: bool[2] = [1, 0]
  const %wide: u64[2] = [18446744073709551615, 0]
  const %odd: f32[4] = [nan, inf, -inf, -0]
  %y = Conv(%x, %w, _) {strides: [2, 2], pads: [3, 3, 3, 3]} from ["conv1"]
  %a: f32[batch, 32, 112, 112], %b = Split(%y) {axis: 1, num_outputs: 2} from ["a \"quoted\" name", "two"]
  %c = LeakyRelu(%a) {alpha: 1}
  %d = LeakyRelu(%c) {alpha: 0.25}
  %e = Reshape(%d) {shape: dims[batch*32, 112*112]}
  %f = Pointwise(%e, %e) {program: program(2 inputs) "r2 = add r0 r1; r2 = relu r2 -> r2"}
  %g = ConstantOfShape() {shape: dims[batch], value: const i64[1] [3]}
  output %f as "left"
  output %b
}
)";

TEST(Text, RoundTrips) {
  Result<std::unique_ptr<Graph>> graph = parse(kEverything);
  ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
  ASSERT_TRUE(verify(**graph).is_ok()) << verify(**graph).to_string();
  std::string text = print(**graph, {.full_constants = true});
  Result<std::unique_ptr<Graph>> again = parse(text);
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(print(**again, {.full_constants = true}), text);
  EXPECT_EQ(print(**again), print(**graph));
  for (const Value* value : (*graph)->values()) {
    const Value* same = (*again)->find_value(value->name);
    ASSERT_NE(same, nullptr) << value->name;
    ASSERT_EQ(value->is_constant(), same->is_constant());
    EXPECT_TRUE(!value->constant || value->constant->same_content(*same->constant)) << value->name;
  }
}

TEST(Text, PrintsTypesAndSources) {
  Result<std::unique_ptr<Graph>> graph = parse(kEverything);
  ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
  std::string text = print(**graph);
  for (const char* line : {
           "  input %x: f32[batch, 3, 224, 224]\n",
           "  const %flat: f16[2, 2] = splat(0.5)\n",
           "  const %odd: f32[4] = [nan, inf, -inf, -0]\n",
           "  %y: f32[batch, 64, 112, 112] = Conv(%x, %w, _) {pads: [3, 3, 3, 3], strides: [2, 2]} from [\"conv1\"]\n",
           "  %e: f32[32*batch, 12544] = Reshape(%d) {shape: dims[32*batch, 12544]}\n",
           "  output %b as \"b\"\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
  EXPECT_NE(text.find("%w: f32[64, 3, 7, 7] = hash("), std::string::npos);
  EXPECT_EQ(print(**graph, {.sources = false}).find("from"), std::string::npos);
  EXPECT_NE(parse(text).status().message().find("full_constants"), std::string::npos);
}

TEST(Text, RandomConstantsAreTheSameEverywhere) {
  auto graph = parse("graph @g { const %w: f32[10000] = random(seed=5, mean=2, std=0.5) }");
  ASSERT_TRUE(graph.is_ok()) << graph.status().to_string();
  std::span<const float> values = (*graph)->find_value("w")->constant->as<float>();
  double sum = 0, squares = 0;
  for (float v : values) {
    sum += v;
    squares += (v - 2.0) * (v - 2.0);
  }
  EXPECT_NEAR(sum / 10000, 2, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 10000), 0.5, 0.02);
  EXPECT_FLOAT_EQ(values[0], 1.6473478F);
}

struct Wrong {
  const char* text;
  const char* message;  // a part of it
};

TEST(Text, ErrorsSayWhereAndWhat) {
  const Wrong cases[] = {
      {"", "line 1, column 1: found the end, expected 'graph'"},
      {"graph @g {\n  input %x: f33[2]\n}", "line 2, column 13: found 'f33[2]', expected an element type"},
      {"graph @g {\n  input %x: f32[2\n}", "',' or ']'"},
      {"graph @g {\n  input %x: f32[2 +]\n}", "line 2, column 17"},
      {"graph @g { input %x: f32[2]\n %y = Nope(%x) }", "line 2, column 7: there is no operator Nope"},
      {"graph @g { %y = Relu(%x) }", "there is no %x above"},
      {"graph @g { input %x: f32[2] input %x: f32[2] }", "%x is there already"},
      {"graph @g { input %x: f32[2] %y: f32[3] = Relu(%x) }", "%y is f32[2]; its line says f32[3]"},
      {"graph @g { input %x: f32[2] %y = Relu(%x) {slope: 1} }", "attribute slope is unknown"},
      {"graph @g { input %x: f32[2] %y = Softmax(%x) {axis: \"a\"} }", "attribute axis is text; expected an integer"},
      {"graph @g { const %c: f32[3] = [1, 2] }", "has 3 elements; found only 2"},
      {"graph @g { const %c: f32[1] = [1, 2] }", "has 1 elements; found more than 1"},
      {"graph @g { const %c: i8[1] = [300] }", "'300' is no i8"},
      {"graph @g { const %c: f32[99999999999] = splat(0) }", "more than"},
      {"graph @g { const %c: f32[n] = splat(0) }", "expected a number"},
      {"graph @g { const %c: f32[1] = [\"x\"] }", "is no f32"},
      {"graph @g { output %\"open", "no closing quote"},
      {"graph @g { input %x: f32[2] %y = Pointwise(%x) {program: program(1 inputs) \"r9 = bad\"} }", "line 1"},
      {"graph @g { } }", "expected the end"},
  };
  for (const Wrong& wrong : cases) {
    Result<std::unique_ptr<Graph>> graph = parse(wrong.text);
    ASSERT_FALSE(graph.is_ok()) << wrong.text;
    EXPECT_NE(graph.status().message().find(wrong.message), std::string::npos) << wrong.text << "\n"
                                                                               << graph.status().message();
  }
}

TEST(Text, TruncatedTextNeverParsesOrCrashes) {
  for (size_t n = 0; n + 3 < kEverything.size(); ++n) EXPECT_FALSE(parse(kEverything.substr(0, n)).is_ok()) << n;
  std::string deep = "graph @g {";
  for (int i = 0; i < 5000; ++i) deep += " %y = Relu() {a: graph @g {";
  EXPECT_FALSE(parse(deep).is_ok());
}

}  // namespace
}  // namespace flywheel::ir
