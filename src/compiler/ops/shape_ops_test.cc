// SPDX-License-Identifier: Apache-2.0
// Inference of operators that move elements or compute extents.
#include "compiler/ops/infer_cases.h"

namespace flywheel::ops {
namespace {

TEST(Infer, Reshapes) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[2, 3, 4] %y = Reshape(%x) {shape: dims[6, 4]}", "f32[6, 4]"},
           {"input %x: f32[2, 3, 4] %y = Reshape(%x) {shape: [-1, 4]}", "f32[6, 4]"},
           {"input %x: f32[b, s, 768] %y = Reshape(%x) {shape: dims[0, 0, 12, 64], allowzero: 0}", "f32[b, s, 12, 64]"},
           {"input %x: f32[b, s, 768] %y = Reshape(%x) {shape: dims[b, -1, 12, 64]}", "f32[b, s, 12, 64]"},
           {"input %x: f32[b, 64, h, w] %y = Reshape(%x) {shape: dims[b, 64, -1]}", "f32[b, 64, h*w]"},
           {"input %x: f32[b, s, 6] %y = Reshape(%x) {shape: dims[-1, 4]}", "f32[b*s + floor(b*s / 2), 4]",
            "4*b*s + 4*floor(b*s / 2) == 6*b*s"},
           {"input %x: f32[n] %y = Reshape(%x) {shape: dims[m]}", "f32[m]", "m == n"},
           {"input %x: f32[0, 3] %y = Reshape(%x) {shape: dims[3, 0]}", "f32[3, 0]"},
           {"input %x: f32[] %y = Reshape(%x) {shape: dims[1, 1]}", "f32[1, 1]"},
           {"input %x: f32[2, n, 4] %y = Flatten(%x)", "f32[2, 4*n]"},
           {"input %x: f32[2, n, 4] %y = Flatten(%x) {axis: 0}", "f32[1, 8*n]"},
           {"input %x: f32[2, n, 4] %y = Flatten(%x) {axis: 3}", "f32[8*n, 1]"},
           {"input %x: f32[2, n, 4] %y = Flatten(%x) {axis: -1}", "f32[2*n, 4]"},
           {"input %x: f32[1, n, 1] %y = Squeeze(%x) {axes: [-1, 0]}", "f32[n]"},
           {"input %x: f32[n, m] %y = Squeeze(%x) {axes: [0]}", "f32[m]", "n == 1"},
           {"input %x: f32[n] %y = Unsqueeze(%x) {axes: [0, -1]}", "f32[1, n, 1]"},
           {"input %x: f32[n] %y = Identity(%x)", "f32[n]"},
           {"input %x: f32[n] %y, %m = Dropout(%x)", "f32[n] bool[n]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[4]}", "found 6 and 4"},
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[-1, -1]}", "-1 twice"},
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[-1, 0]}", "-1 could be anything"},
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[-2, -3]}", "dim 0 of its shape is -2"},
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[2, 3, 0], allowzero: 0}", "no such dim"},
           {"input %x: f32[2, 3] %y = Reshape(%x) {shape: dims[4, -1]}", "must be equal"},
           {"input %x: f32[2, 3] %y = Reshape(%x)", "attribute shape is missing"},
           {"input %x: f32[2] %y = Reshape(%x) {shape: dims[9223372036854775807, 9223372036854775807]}", "Reshape"},
           {"input %x: f32[2, 3] %y = Squeeze(%x) {axes: [0]}", "found 2 and 1"},
           {"input %x: f32[1, 3] %y = Squeeze(%x) {axes: [0, -2]}", "names a dim twice"},
           {"input %x: f32[1, 3] %y = Squeeze(%x) {axes: [2]}", "expected -2 to 1"},
           {"input %x: f32[3] %y = Unsqueeze(%x) {axes: [5]}", "expected -2 to 1"},
           {"input %x: f32[3] %y = Flatten(%x) {axis: 2}", "attribute axis is 2"},
           {"input %x: f32[1,1,1,1,1,1,1,1] %y = Unsqueeze(%x) {axes: [0]}", "9 dims; at most 8", Code::kUnsupported},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, ShapesAndWhatIsMadeFromThem) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[b, 3, h] %y = Shape(%x)", "i64[3] = [b, 3, h]"},
           {"input %x: f32[b, 3, h] %y = Shape(%x) {start: 1}", "i64[2] = [3, h]"},
           {"input %x: f32[b, 3, h] %y = Shape(%x) {start: -100, end: -1}", "i64[2] = [b, 3]"},
           {"input %x: f32[b, 3, h] %y = Shape(%x) {start: 2, end: 1}", "i64[0] = []"},
           {"input %x: f32[b, 3, h] %y = Size(%x)", "i64[] = [3*b*h]"},
           {"%y = ConstantOfShape() {shape: dims[b, 2]}", "f32[b, 2]"},
           {"%y = ConstantOfShape() {shape: dims[3], value: const i64[1] [7]}", "i64[3] = [7, 7, 7]"},
           {"%y = ConstantOfShape() {shape: dims[], value: const i32[] [7]}", "i32[] = [7]"},
           {"%y = Range() {start: dims[0], step: dims[1], count: dims[s]}", "i64[s]"},
           {"%y = Range() {start: dims[p], step: dims[2], count: dims[3]}", "i64[3] = [p, p + 2, p + 4]"},
           {"%y = Range() {start: 0.5, step: 0.25, count: dims[3], dtype: 0}", "f32[3]"},
           {"%y = Range() {start: 1, step: 1, count: [2], dtype: \"i32\"}", "i32[2] = [1, 2]"},
       }) {
    expect_inferred(c);
  }
  // An extent that would be negative for small inputs cannot be one that Shape reads.
  expect_inferred({"const %w: f32[1, 1, 10] = splat(0) input %x: f32[1, 1, n] %c = Conv(%x, %w) %y = Shape(%c)",
                   "i64[3] = [1, 1, n - 9]", "n - 9 == max(0, n - 9)"});
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"%y = ConstantOfShape() {shape: dims[-1]}", "negative"},
           {"%y = ConstantOfShape() {shape: dims[2], value: const i64[2] [7, 8]}", "expected 1"},
           {"%y = ConstantOfShape() {shape: dims[4611686018427387904]}", "larger than 64 bits"},
           {"%y = ConstantOfShape() {shape: dims[9223372036854775807, 2, n]}", "larger than 64 bits"},
           {"%y = Range() {start: 0.5, step: 1.0, count: dims[3]}", "start and step"},
           {"%y = Range() {start: dims[0], step: dims[1], count: dims[1, 2]}", "expected 1"},
           {"%y = Range() {start: dims[0], step: dims[1], count: dims[1], dtype: 4}", "expected i32"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, ElementsFollowShapeArithmetic) {
  const std::string shape = "input %x: f32[b, s, 768] const %i: i64[] = [1] const %two: i64[1] = [2] %sh = Shape(%x) ";
  struct {
    const char* body;
    const char* expected;
    const char* assumed = "";
  } cases[] = {
      {"%y = Gather(%sh, %i)", "i64[] = [s]"},
      {"%g = Gather(%sh, %i) %y = Unsqueeze(%g) {axes: [0]}", "i64[1] = [s]"},
      {"const %j: i64[2] = [-1, 0] %y = Gather(%sh, %j)", "i64[2] = [768, b]"},
      {"%y = Slice(%sh) {starts: [0], ends: [2]}", "i64[2] = [b, s]"},
      {"%y = Slice(%sh) {starts: [-1], ends: [-9223372036854775808], steps: [-1]}", "i64[3] = [768, s, b]"},
      {"%y = Concat(%sh, %two) {axis: 0}", "i64[4] = [b, s, 768, 2]"},
      {"%a, %b = Split(%sh) {axis: 0, split: [1, 2]} %y = Squeeze(%a) {axes: [0]}", "i64[] = [b]"},
      {"%y = Mul(%sh, %two)", "i64[3] = [2*b, 2*s, 1536]"},
      {"%y = Add(%sh, %sh)", "i64[3] = [2*b, 2*s, 1536]"},
      {"%y = Sub(%sh, %two)", "i64[3] = [b - 2, s - 2, 766]"},
      {"%y = Div(%sh, %two)", "i64[3] = [floor(b / 2), floor(s / 2), 384]"},
      {"%n = Neg(%sh) %y = Div(%n, %two)", "i64[3]"},  // truncates toward zero: no floor
      {"const %m: i64[1] = [-1] %y = Div(%m, %two)", "i64[1] = [0]"},
      {"%y = Mod(%sh, %two)", "i64[3] = [mod(b, 2), mod(s, 2), 0]"},
      {"%y = Max(%sh, %two)", "i64[3] = [max(b, 2), max(s, 2), 768]"},
      {"%y = Cast(%sh) {to: 6}", "i32[3] = [b, s, 768]"},
      {"%y = Cast(%sh) {to: \"f32\"}", "f32[3]"},
      {"%y = ReduceProd(%sh) {keepdims: 0}", "i64[] = [768*b*s]"},
      {"%y = ReduceSum(%sh)", "i64[1] = [b + s + 768]"},
      {"const %m: i64[1] = [-1] %e = Equal(%sh, %m) %o = ConstantOfShape() {shape: dims[3], value: const i64[1] [1]} "
       "%y = Where(%e, %o, %sh)",
       "i64[3] = [b, s, 768]"},
      {"const %z: i64[1] = [0] %e = GreaterOrEqual(%sh, %z) %y = Not(%e)", "bool[3] = [0, 0, 0]"},
      {"%y = Less(%sh, %two)", "bool[3]"},
      {"%y = Tile(%two) {repeats: [3]}", "i64[3] = [2, 2, 2]"},
      {"%y = Expand(%two) {shape: dims[2]}", "i64[2] = [2, 2]"},
      {"%y = Transpose(%sh) {perm: [0]}", "i64[3] = [b, s, 768]"},
      {"%y = Reshape(%sh) {shape: dims[3, 1]}", "i64[3, 1]"},
      {"%y = Pow(%sh, %two)", "i64[3] = [b*b, s*s, 589824]"},
      {"const %h: i64[1] = [9223372036854775807] %y = Mul(%h, %two)", "i64[1]"},
      {"const %h: i32[1] = [2147483647] %y = Add(%h, %h)", "i32[1]"},
  };
  for (const auto& c : cases) {
    std::string body = shape + c.body;
    expect_inferred({body.c_str(), c.expected, c.assumed});
  }
  expect_refused({"input %x: f32[2] const %i: i64[1] = [3] %y = Gather(%x, %i)", "index 3 is outside"});
}

TEST(Infer, Moves) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %x: f32[a, b, 3] %y = Transpose(%x) {perm: [2, 0, 1]}", "f32[3, a, b]"},
           {"input %x: f32[n, 3] input %z: f32[n, 5] %y = Concat(%x, %z) {axis: -1}", "f32[n, 8]"},
           {"input %x: f32[n, 3] input %z: f32[m, 3] %y = Concat(%x, %z) {axis: 0}", "f32[m + n, 3]"},
           {"input %x: f32[n, 3] input %z: f32[4, m] %y = Concat(%x, %z) {axis: 0}", "f32[n + 4, 3]", "m == 3"},
           {"input %x: f32[6, n] %a, %b = Split(%x) {axis: 0, num_outputs: 2}", "f32[3, n] f32[3, n]"},
           {"input %x: f32[7] %a, %b, %c = Split(%x) {axis: 0}", "f32[3] f32[3] f32[1]"},
           {"input %x: f32[n] %a, %b = Split(%x) {axis: 0}",
            "f32[floor((n + 1) / 2)] "
            "f32[n - floor((n + 1) / 2)]"},
           {"input %x: f32[2*n] %a, %b = Split(%x)", "f32[n] f32[n]"},
           {"input %x: f32[n + m] %a, %b = Split(%x) {split: dims[n, m]}", "f32[n] f32[m]"},
           {"input %x: f32[n, 1, 4] %y = Expand(%x) {shape: dims[2, 1, s, 4]}", "f32[2, n, s, 4]"},
           {"input %x: f32[n, 1] %y = Expand(%x) {shape: [-1, 5]}", "f32[n, 5]"},
           {"input %x: f32[n, 3] %y = Tile(%x) {repeats: dims[2, k]}", "f32[2*n, 3*k]"},
           {"input %x: f32[n, 3] %y = Pad(%x) {pads: [1, -1, 2, 0]}", "f32[n + 3, 2]"},
           {"input %x: f32[n, 3] %y = Pad(%x) {pads: dims[0, 0, 8 - n, 0], mode: \"edge\"}", "f32[8, 3]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [1], ends: [4]}", "f32[3, n]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [1], ends: [9223372036854775807], axes: [1]}",
            "f32[5, max(0, n - 1)]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [-3], ends: [9223372036854775807], axes: [-1]}",
            "f32[5, min(n, 3)]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [0], ends: [-1], axes: [1]}", "f32[5, max(0, n - 1)]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [0], ends: [3], axes: [1]}", "f32[5, min(n, 3)]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [0, 0], ends: [9, 1000000000000], steps: [2, 2]}",
            "f32[3, floor((n + 1) / 2)]"},
           {"input %x: f32[5, n] %y = Slice(%x) {starts: [-1], ends: [-1000000000000], axes: [1], steps: [-1]}",
            "f32[5, n]"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [4], ends: [0], steps: [-2]}", "f32[2]"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [3], ends: [1]}", "f32[0]"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [9], ends: [12]}", "f32[0]"},
           {"input %x: f32[1, 512] %y = Slice(%x) {starts: dims[0], ends: dims[s], axes: [1]}", "f32[1, s]",
            "s == min(s, 512)"},
           {"input %x: f32[p + s, 3] %y = Slice(%x) {starts: dims[p], ends: dims[p + s]}", "f32[s, 3]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %x: f32[2, 3] %y = Transpose(%x) {perm: [0, 0]}", "no order of the 2 dims"},
           {"input %x: f32[2, 3] %y = Transpose(%x) {perm: [0]}", "no order of the 2 dims"},
           {"input %x: f32[2, 3] %y = Transpose(%x) {perm: [0, 2]}", "no order of the 2 dims"},
           {"input %x: f32[2, 3] input %z: f32[3, 3] %y = Concat(%x, %z) {axis: 1}", "found 2 and 3"},
           {"input %x: f32[2, 3] input %z: f32[3] %y = Concat(%x, %z) {axis: 0}", "equal ranks"},
           {"input %x: f32[2] input %z: i64[2] %y = Concat(%x, %z) {axis: 0}", "expected one type"},
           {"input %x: f32[2] %y = Concat(%x, _) {axis: 0}", "operand 1 is absent"},
           {"input %x: f32[2] %y = Concat(%x)", "attribute axis is missing"},
           {"input %x: f32[6] %a, %b = Split(%x) {split: [2, 3]}", "found 5 and 6"},
           {"input %x: f32[6] %a, %b = Split(%x) {split: [-1, 7]}", "attribute split has -1"},
           {"input %x: f32[6] %a, %b = Split(%x) {split: [1, 2, 3]}", "3 entries for 2 outputs"},
           {"input %x: f32[6] %a, %b = Split(%x) {num_outputs: 3}", "num_outputs is 3 for 2"},
           {"input %x: f32[2, 3] %y = Expand(%x) {shape: [4, 3]}", "found 2 and 4"},
           {"input %x: f32[2, 3] %y = Tile(%x) {repeats: [4]}", "1 entries"},
           {"input %x: f32[2] %y = Tile(%x) {repeats: [-1]}", "attribute repeats has -1"},
           {"input %x: f32[2, 3] %y = Pad(%x) {pads: [1, 1]}", "expected 4"},
           {"input %x: f32[2, 3] %y = Pad(%x) {pads: [-3, 0, 0, 0]}", "negative"},
           {"input %x: f32[2] %y = Pad(%x) {pads: [0, 0], mode: \"mirror\"}", "mirror"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [0], ends: [1], steps: [0]}", "step of dim 0 is 0"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [0], ends: [1, 2]}", "equal counts"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [0, 0], ends: [1, 1], axes: [0, -1]}", "dim 0 twice"},
           {"input %x: f32[5] %y = Slice(%x) {starts: [0], ends: [1], axes: [3]}", "expected -1 to 0"},
       }) {
    expect_refused(c);
  }
}

TEST(Infer, GathersAndScatters) {
  for (const InferCase& c : std::initializer_list<InferCase>{
           {"input %d: f32[30522, 768] input %i: i64[b, s] %y = Gather(%d, %i)", "f32[b, s, 768]"},
           {"input %d: f32[b, s, 8] input %i: i32[] %y = Gather(%d, %i) {axis: 1}", "f32[b, 8]"},
           {"input %d: f32[n, 8] input %i: i64[n, 3] %y = GatherElements(%d, %i) {axis: 1}", "f32[n, 3]"},
           {"input %d: f32[b, 5, 6] input %i: i64[b, k, 1] %y = GatherND(%d, %i) {batch_dims: 1}", "f32[b, k, 6]"},
           {"input %d: f32[b, 5, 6] input %i: i64[k, 2] %y = GatherND(%d, %i)", "f32[k, 6]"},
           {"input %d: f32[b, 5] input %i: i64[k, 2] input %u: f32[k] %y = ScatterND(%d, %i, %u)", "f32[b, 5]"},
           {"input %d: f32[b, 5] input %i: i64[b, 2] input %u: f32[b, 2] %y = ScatterElements(%d, %i, %u) {axis: 1}",
            "f32[b, 5]"},
           {"input %x: f32[b, 1000] %v, %i = TopK(%x) {k: 5}", "f32[b, 5] i64[b, 5]"},
       }) {
    expect_inferred(c);
  }
  for (const WrongCase& c : std::initializer_list<WrongCase>{
           {"input %d: f32[4] input %i: f32[2] %y = Gather(%d, %i)", "expected i32 or i64"},
           {"input %d: f32[] input %i: i64[2] %y = Gather(%d, %i)", "attribute axis is 0"},
           {"input %d: f32[2, 3] input %i: i64[2] %y = GatherElements(%d, %i)", "equal ranks"},
           {"input %d: f32[2, 3] input %i: i64[2, 4] %y = GatherElements(%d, %i)", "more than the data's 3"},
           {"input %d: f32[2, 3] input %i: i64[4, 3] %y = GatherND(%d, %i)", "expected 1 to 2"},
           {"input %d: f32[2, 3] input %i: i64[4, n] %y = GatherND(%d, %i)", "must be fixed", Code::kUnsupported},
           {"input %d: f32[2, 3] input %i: i64[4, 1] %y = GatherND(%d, %i) {batch_dims: 2}", "batch_dims is 2"},
           {"input %d: f32[2] input %i: i64[2, 1] input %u: f32[3] %y = ScatterND(%d, %i, %u)", "found 3 and 2"},
           {"input %x: f32[4] %v, %i = TopK(%x) {k: 5}", "k is 5"},
       }) {
    expect_refused(c);
  }
}

}  // namespace
}  // namespace flywheel::ops
