// SPDX-License-Identifier: Apache-2.0
// Inference of operators that compute, and what holds for all operators.
#include <cmath>
#include <set>

#include "compiler/ops/infer_cases.h"
#include "compiler/ops/op.h"

namespace flywheel::ops {
namespace {

TEST(Infer, ElementwiseBroadcasts) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[n, 3] input %z: f32[3] %y = Add(%x, %z)", "f32[n, 3]"},
           {"input %x: f32[n, 1] input %z: f32[1, s] %y = Mul(%x, %z)", "f32[n, s]"},
           {"input %x: f32[n] input %z: f32[n] %y = Sub(%x, %z)", "f32[n]"},
           {"input %x: f32[n] input %z: f32[m] %y = Sub(%x, %z)", "f32[n]", "m == n"},
           {"input %x: f32[n] input %z: f32[4] %y = Div(%x, %z)", "f32[4]", "n == 4"},
           {"input %x: f32[] input %z: f32[0] %y = Max(%x, %z)", "f32[0]"},
           {"input %x: i64[n] input %z: i64[n] %y = Equal(%x, %z)", "bool[n]"},
           {"input %x: bool[n] input %z: bool[1] %y = And(%x, %z)", "bool[n]"},
           {"input %c: bool[n, 1] input %x: f32[5] input %z: f32[] %y = Where(%c, %x, %z)", "f32[n, 5]"},
           {"input %x: f32[n, 3, 4] input %s: f32[3, 1] %y = PRelu(%x, %s)", "f32[n, 3, 4]"},
           {"input %x: f16[n] %y = Cast(%x) {to: \"i64\"}", "i64[n]"},
           {"input %x: f32[n] %y = IsNaN(%x)", "bool[n]"},
           {"input %x: f32[n] %y = Clip(%x) {min: 0.0, max: 6}", "f32[n]"},
           {"input %x: f32[n] %y = Gelu(%x) {approximate: \"tanh\"}", "f32[n]"},
           {"input %x: f32[n] input %z: f32[n] %y = Mod(%x, %z) {fmod: 1}", "f32[n]"},
           {"input %x: f32[b, n] input %z: f32[2, 1] %y = Pointwise(%x, %z) "
            "{program: program(2 inputs) \"r2 = mul r0 r1 -> r2\", dtype: \"bool\"}",
            "bool[2, n]", "b == 2"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[2] input %z: f32[3] %y = Add(%x, %z)", "shapes [2] and [3]"},
           {"input %x: f32[n] input %z: f32[n + 1] %y = Add(%x, %z)", "found n and n + 1"},
           {"input %x: f32[2] input %z: f64[2] %y = Add(%x, %z)", "operand 0 is f32 and operand 1 is f64"},
           {"input %x: f32[2] %y = Add(%x)", "1 operands; expected 2"},
           {"input %x: f32[2] %y = Add(%x, _)", "operand 1 is absent"},
           {"input %x: f32[2] %y = Relu(%x, %x)", "2 operands; expected 1"},
           {"input %x: f32[2] %y, %z = Relu(%x)", "2 outputs; expected 1"},
           {"input %x: i64[2] %y = Exp(%x)", "expected a floating-point type"},
           {"input %x: bool[2] %y = Add(%x, %x)", "bool; expected numbers"},
           {"input %x: f32[2] %y = And(%x, %x)", "expected bool"},
           {"input %x: f32[2] %y = Where(%x, %x, %x)", "condition is f32"},
           {"input %x: f32[2] input %z: f32[3, 2] %y = PRelu(%x, %z)", "does not broadcast"},
           {"input %x: f32[2] %y = Cast(%x)", "attribute to is missing"},
           {"input %x: f32[2] %y = Cast(%x) {to: 99}", "no data type"},
           {"input %x: f32[2] %y = Cast(%x) {to: \"f99\"}", "no data type"},
           {"input %x: f32[2] %y = Mod(%x, %x)", "needs fmod=1"},
           {"input %x: f32[2] %y = Gelu(%x) {approximate: \"x\"}", "\"none\" or \"tanh\""},
           {"input %x: f32[2] %y = Pointwise(%x, %x) {program: program(1 inputs) \"r1 = relu r0 -> r1\"}",
            "1 inputs and it has 2"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, Convolutions) {
  const std::string conv = "input %x: f32[b, 3, h, 224] const %w: f32[64, 3, 7, 7] = splat(0) ";
  struct {
    const char* attributes;
    const char* expected;
  } cases[] = {
      {"strides: [2, 2], pads: [3, 3, 3, 3]", "f32[b, 64, floor((h + 1) / 2), 112]"},
      {"", "f32[b, 64, h - 6, 218]"},
      {"kernel_shape: [7, 7], dilations: [2, 1], pads: [6, 0, 6, 0]", "f32[b, 64, h, 218]"},
      {"auto_pad: \"SAME_UPPER\", strides: [3, 3]", "f32[b, 64, floor((h + 2) / 3), 75]"},
      {"auto_pad: \"SAME_LOWER\"", "f32[b, 64, h, 224]"},
      {"auto_pad: \"VALID\", strides: [1, 2]", "f32[b, 64, h - 6, 109]"},
  };
  for (const auto& c : cases) {
    std::string body = conv + "%y = Conv(%x, %w) {" + c.attributes + "}";
    expect_inferred({body.c_str(), c.expected});
  }
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[b, h, w, 3] const %w: f32[8, 3, 3, 3] = splat(0) const %c: f32[8] = splat(0) "
            "%y = Conv(%x, %w, %c) {layout: \"NHWC\", pads: [1, 1, 1, 1]}",
            "f32[b, h, w, 8]"},
           {"input %x: f32[b, 8, 10] const %w: f32[8, 1, 3] = splat(0) %y = Conv(%x, %w) {group: 8}", "f32[b, 8, 8]"},
           {"input %x: f32[b, 8, 9, 9, 9] const %w: f32[4, 8, 3, 3, 3] = splat(0) %y = Conv(%x, %w)",
            "f32[b, 4, 7, 7, 7]"},
           {"input %x: f32[b, c, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w)", "f32[b, 4, 7, 7]",
            "c == 8"},
           {"input %x: f32[b, 7, 7, 8] const %w: f32[4, 8, 1, 1] = splat(0) const %c: f32[4] = splat(0) "
            "input %r: f32[b, 7, 7, 4] %y = Conv(%x, %w, %c, %r) {layout: \"NHWC\", "
            "program: program(3 inputs) \"r3 = add r0 r1; r3 = add r3 r2; r3 = relu r3 -> r3\"}",
            "f32[b, 7, 7, 4]"},
           {"input %x: f32[b, 8, h, w] const %w: f32[8, 4, 2, 2] = splat(0) %y = ConvTranspose(%x, %w) {strides: [2, "
            "2]}",
            "f32[b, 4, 2*h, 2*w]"},
           {"input %x: f32[1, 8, 5, 5] const %w: f32[8, 2, 3, 3] = splat(0) %y = ConvTranspose(%x, %w) "
            "{strides: [2, 2], pads: [1, 1, 1, 1], output_padding: [1, 1], group: 2}",
            "f32[1, 4, 10, 10]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[1, 4, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w)", "found 4 and 8"},
           {"input %x: f32[1, 8, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w)", "equal ranks"},
           {"input %x: f32[8, 9] const %w: f32[4, 8] = splat(0) %y = Conv(%x, %w)", "rank 2"},
           {"input %x: f32[1, 8, 2, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w)",
            "the kernel reaches over 3"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {strides: [0, 1]}",
            "strides has 0"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {strides: [1]}",
            "1 entries; expected 2"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {pads: [1, 1]}",
            "2 entries; expected 4"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {dilations: "
            "[9223372036854775807, 1]}",
            "dilations has"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {kernel_shape: [5, 5]}",
            "differs"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[3, 4, 3, 3] = splat(0) %y = Conv(%x, %w) {group: 2}",
            "do not divide"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) const %c: f32[5] = splat(0) %y = Conv(%x, "
            "%w, %c)",
            "found 5 and 4"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {auto_pad: "
            "\"SAME_UPPER\", pads: [1, 1, 1, 1]}",
            "expected one of them"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) {auto_pad: \"SAME\"}",
            "auto_pad is \"SAME\""},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w, %x, %x)", "no program"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w, %x) "
            "{program: program(2 inputs) \"r2 = add r0 r1 -> r2\"}",
            "does not broadcast to [1, 4, 7, 7]"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[4, 8, 3, 3] = splat(0) %y = Conv(%x, %w) "
            "{program: program(2 inputs) \"r2 = add r0 r1 -> r2\"}",
            "takes 2 inputs; expected 1"},
           {"input %x: f32[1, 8, 9, 9] const %w: f32[8, 4, 3, 3] = splat(0) %y = ConvTranspose(%x, %w) "
            "{output_padding: [1, 0]}",
            "output_padding has 1"},
           {"input %x: f32[1, 8, 1, 9] const %w: f32[8, 4, 1, 3] = splat(0) %y = ConvTranspose(%x, %w) {pads: [1, 0, "
            "1, 0]}",
            "negative"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, Pools) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[b, 64, 112, h] %y = MaxPool(%x) {kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1]}",
            "f32[b, 64, 56, floor((h + 1) / 2)]"},
           {"input %x: f32[b, 64, 55, 55] %y = MaxPool(%x) {kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1}",
            "f32[b, 64, 27, 27]"},
           {"input %x: f32[b, 64, 6, 6] %y = MaxPool(%x) {kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1}",
            "f32[b, 64, 3, 3]"},
           // ceil would begin a window in the trailing pad
           {"input %x: f32[1, 1, 2, 2] %y = AveragePool(%x) {kernel_shape: [1, 1], strides: [2, 2], ceil_mode: 1}",
            "f32[1, 1, 1, 1]"},
           {"input %x: f32[1, 1, n] %y = MaxPool(%x) {kernel_shape: [3], strides: [2], ceil_mode: 1}",
            "f32[1, 1, min(floor(n / 2), floor((n + 1) / 2))]"},
           {"input %x: f32[b, 9, 9, 4] %y, %i = MaxPool(%x) {kernel_shape: [2, 2], layout: \"NHWC\"}",
            "f32[b, 8, 8, 4] i64[b, 8, 8, 4]"},
           {"input %x: f32[b, 4, h, w] %y = GlobalAveragePool(%x)", "f32[b, 4, 1, 1]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[1, 4, 9, 9] %y = MaxPool(%x)", "kernel_shape is missing"},
           {"input %x: f32[1, 4, 9, 9] %y = MaxPool(%x) {kernel_shape: [2]}", "1 entries"},
           {"input %x: f32[1, 4, 9, 9] %y = MaxPool(%x) {kernel_shape: [2, 2], pads: [2, 0, 0, 0]}",
            "not less than the kernel's 2"},
           {"input %x: i64[1, 4, 9, 9] %y = AveragePool(%x) {kernel_shape: [2, 2]}", "floating-point"},
           {"input %x: f32[1, 4, 9, 9] %y = MaxPool(%x) {kernel_shape: [2, 2], layout: \"CHWN\"}",
            "layout is \"CHWN\""},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, Products) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %a: f32[b, 512] const %w: f32[1000, 512] = splat(0) const %c: f32[1000] = splat(0) %y = Gemm(%a, "
            "%w, %c) {transB: 1}",
            "f32[b, 1000]"},
           {"input %a: f32[512, b] const %w: f32[512, 10] = splat(0) %y = Gemm(%a, %w) {transA: 1, alpha: 0.5}",
            "f32[b, 10]"},
           {"input %a: f32[b, s, 768] const %w: f32[768, 64] = splat(0) %y = Gemm(%a, %w)", "f32[b, s, 64]"},
           {"input %a: f32[b, 12, s, 64] input %c: f32[b, 12, 64, t] %y = MatMul(%a, %c)", "f32[b, 12, s, t]"},
           {"input %a: f32[b, 1, s, k] input %c: f32[12, k, t] %y = MatMul(%a, %c)", "f32[b, 12, s, t]"},
           {"input %a: f32[k] input %c: f32[b, k, n] %y = MatMul(%a, %c)", "f32[b, n]"},
           {"input %a: f32[b, m, k] input %c: f32[k] %y = MatMul(%a, %c)", "f32[b, m]"},
           {"input %a: f32[k] input %c: f32[k] %y = MatMul(%a, %c)", "f32[]"},
           {"input %q: f32[b, 12, s, 64] input %k: f32[b, 12, t, 64] input %v: f32[b, 12, t, 32] input %m: f32[b, 1, "
            "1, t] "
            "%y = Attention(%q, %k, %v, %m) {scale: 0.125, mask_kind: 1}",
            "f32[b, 12, s, 32]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %a: f32[2, 3] input %c: f32[4, 5] %y = MatMul(%a, %c)", "found 3 and 4"},
           {"input %a: f32[2, 2, 3] input %c: f32[3, 3, 5] %y = MatMul(%a, %c)", "found 2 and 3"},
           {"input %a: f32[] input %c: f32[3] %y = MatMul(%a, %c)", "rank 0"},
           {"input %a: f32[2, 3] input %c: f32[3, 4, 5] %y = Gemm(%a, %c)", "expected rank 2"},
           {"input %a: f32[2, 3] input %c: f32[3, 4] input %d: f32[5] %y = Gemm(%a, %c, %d)", "does not broadcast"},
           {"input %a: f32[2, 3] input %c: f64[3, 4] %y = Gemm(%a, %c)", "expected one type"},
           {"input %q: f32[1, 1, 2, 4] input %m: f32[1, 1, 1, 2] %y = Attention(%q, %q, %q, %m) {mask_kind: 2}",
            "expected bool"},
           {"input %q: f32[1, 1, 2, 4] %y = Attention(%q, %q, %q) {mask_kind: 1}", "no mask"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, ReductionsAndNormalizations) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[b, s, 768] %y = ReduceMean(%x) {axes: [-1]}", "f32[b, s, 1]"},
           {"input %x: f32[b, s, 768] %y = ReduceSum(%x) {axes: [0, 2], keepdims: 0}", "f32[s]"},
           {"input %x: f32[b, s, 768] %y = ReduceMax(%x) {keepdims: 0}", "f32[]"},
           {"input %x: f32[b, s] %y = ArgMax(%x) {axis: -1, keepdims: 0}", "i64[b]"},
           {"input %x: f32[b, s] %y = Softmax(%x)", "f32[b, s]"},
           {"input %x: f32[b, s, 8] const %g: f32[8] = splat(1) %y = LayerNormalization(%x, %g)", "f32[b, s, 8]"},
           {"input %x: f32[b, s, 8] const %g: f32[8] = splat(1) %y, %m, %i = LayerNormalization(%x, %g, _) {axis: 2}",
            "f32[b, s, 8] f32[b, s, 1] f32[b, s, 1]"},
           {"input %x: f32[b, 8, h] input %g: f32[8] %y = BatchNormalization(%x, %g, %g, %g, %g)", "f32[b, 8, h]"},
           {"input %x: f32[b, 8, h] input %g: f32[8] %y = GroupNormalization(%x, %g, %g) {num_groups: 4}",
            "f32[b, 8, h]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[2, 3] %y = ReduceMean(%x) {axes: [2]}", "expected -2 to 1"},
           {"input %x: f32[2, 3] %y = ReduceMean(%x) {axes: [1, -1]}", "names a dim twice"},
           {"input %x: f32[] %y = ArgMax(%x)", "attribute axis is 0"},
           {"input %x: i64[2] %y = Softmax(%x)", "floating-point"},
           {"input %x: f32[2, 8] const %g: f32[7] = splat(1) %y = LayerNormalization(%x, %g)", "does not broadcast"},
           {"input %x: f32[2, 8, 4] input %g: f32[7] %y = BatchNormalization(%x, %g, %g, %g, %g)", "found 7 and 8"},
           {"input %x: f32[2, 8, 4] input %g: f32[8] %y = GroupNormalization(%x, %g, %g) {num_groups: 3}",
            "num_groups is 3"},
           {"input %x: f32[2, 8] %y = LpNormalization(%x) {p: 3}", "p is 3"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, Resizes) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[b, 8, h, 20] %y = Resize(%x) {scales: [1.0, 1.0, 2.0, 2.0], mode: \"nearest\"}",
            "f32[b, 8, 2*h, 40]"},
           {"input %x: f32[b, 8, h, 21] %y = Resize(%x) {scales: [1.0, 1.0, 0.5, 0.5]}", "f32[b, 8, floor(h / 2), 10]"},
           {"input %x: f32[b, 8, h, 9] %y = Resize(%x) {scales: [1.0, 1.0, 1.5, 0.3333333432674408]}",
            "f32[b, 8, h + floor(h / 2), 3]"},
           {"input %x: f32[b, 8, h, w] %y = Resize(%x) {sizes: dims[b, 8, 2*h, 64]}", "f32[b, 8, 2*h, 64]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[1, 8, 4, 4] %y = Resize(%x)", "scales or sizes is missing"},
           {"input %x: f32[1, 8, 4, 4] %y = Resize(%x) {scales: [2.0, 2.0]}", "2 entries"},
           {"input %x: f32[1, 8, 4, 4] %y = Resize(%x) {scales: [1.0, 1.0, -2.0, 2.0]}", "scales has -2"},
           {"input %x: f32[1, 8, h, 4] %y = Resize(%x) {scales: [1.0, 1.0, 1.2345678, 2.0]}", "no simple ratio",
            Code::kUnsupported},
           {"input %x: f32[1, 8, 4, 4] %y = Resize(%x) {sizes: [1, 8, -4, 4]}", "sizes has -4"},
           {"input %x: f32[1, 9000000000000, 4, 4] %y = Resize(%x) {scales: [1.0, 99999.0, 1.0, 1.0]}", "too large"},
       }) {
    expect_refused(c);
  }
}

TEST(Ops, TableIsConsistent) {
  std::set<std::string_view> names;
  for (const Op* op : all_ops()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_EQ(find_op(op->name), op);
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_FALSE(op->instruction && op->decompose) << op->name;
  }
  EXPECT_EQ(find_op("Nope"), nullptr);
}

TEST(Ops, ElementwiseOperatorsGiveTheirInstruction) {
  auto instruction = [](const char* body) {
    auto graph = ir::parse(std::string("graph @g { input %x: f32[2] ") + body + "}");
    const ir::Node& node = *(*graph)->nodes().back();
    return *find_op(node.op())->instruction(node);
  };
  EXPECT_EQ(instruction("%y = Add(%x, %x)").op, kernels::Opcode::kAdd);
  EXPECT_EQ(instruction("%y = Gelu(%x)").op, kernels::Opcode::kGeluErf);
  EXPECT_EQ(instruction("%y = Clip(%x) {max: 6}").y, 6);
  EXPECT_EQ(instruction("%y = Clip(%x) {max: 6}").x, -INFINITY);
  EXPECT_EQ(instruction("%y = HardSigmoid(%x)").x, 0.2);
  EXPECT_EQ(instruction("%y = LeakyRelu(%x)").x, 0.01);
  EXPECT_EQ(instruction("%y = Elu(%x) {alpha: 2.0}").x, 2);
  for (const Op* op : all_ops()) {
    if (!op->instruction || op->min_inputs != op->max_inputs) continue;
    ir::Graph graph;
    ir::Node* node = graph.add_node(
        op->name,
        std::vector<ir::Value*>(static_cast<size_t>(op->max_inputs), graph.add_input("x", DType::kFloat32, {})), 1);
    EXPECT_EQ(kernels::opcode_arity(op->instruction(*node)->op), op->max_inputs) << op->name;
  }
}

}  // namespace
}  // namespace flywheel::ops
