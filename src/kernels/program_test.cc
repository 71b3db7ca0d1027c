// SPDX-License-Identifier: Apache-2.0
#include "kernels/program.h"

#include <gtest/gtest.h>

#include "kernels/problem.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

TEST(Program, TextReadsBack) {
  for (const char* text :
       {"-> r0", "r2 = add r0 r1; r2 = relu r2 -> r2", "r1 = clip r0 -0.5 6 -> r1", "f64: r3 = where r0 r1 r2 -> r3",
        "i64: r1 = add_imm r0 -7 -> r1", "r1 = clip r0 -inf 0.1 -> r1", "r2 = hard_sigmoid r0 0.16666667 0.5 -> r2"}) {
    auto program = Program::parse(text, 3);
    ASSERT_TRUE(program.is_ok()) << program.status().to_string();
    EXPECT_EQ(program->to_string(), text);
  }
}

TEST(Program, EveryOpcodeReadsBack) {
  for (int op = 0; op < 256; ++op) {
    const int arity = opcode_arity(static_cast<Opcode>(op));
    Program program{.inputs = 3, .code = {{static_cast<Opcode>(op), 5, 0, 1, 2}}, .result = 5};
    EXPECT_EQ(program.validate().is_ok(), arity != 0);
    if (arity == 0) continue;
    auto back = Program::parse(program.to_string(), 3);
    ASSERT_TRUE(back.is_ok()) << program.to_string() << back.status().to_string();
    EXPECT_EQ(back->to_string(), program.to_string());
  }
}

TEST(Program, RefusesWhatCannotRun) {
  auto message = [](const char* text, int inputs) { return Program::parse(text, inputs).status().message(); };
  EXPECT_EQ(message("r2 = add r0 r1 -> r2", 1), "instruction 0 (add) reads r1, which nothing wrote");
  EXPECT_EQ(message("r2 = add r0 r1 -> r3", 2), "the result is r3, which nothing wrote");
  EXPECT_EQ(message("r2 = frob r0 -> r2", 2), "program text: unknown operation 'frob'");
  EXPECT_EQ(message("r32 = relu r0 -> r32", 1), "program text: 'r32' is not a register r0 .. r31");
  EXPECT_EQ(message("r1 = clip r0 a 1 -> r1", 1), "program text: 'a' is not a number");
  EXPECT_EQ(message("r1 = relu r0", 1), "program text: expected '->', found 'the end'");
  EXPECT_EQ(message("-> r0 r1", 2), "program text: expected 'the end', found 'r1'");
  Program program{.inputs = 1, .code = {{Opcode::kRelu, 40, 0}}, .result = 0};
  EXPECT_FALSE(program.validate().is_ok());
  program = {.compute = DType::kInt8, .inputs = 1};
  EXPECT_FALSE(program.validate().is_ok());
  EXPECT_TRUE(Program{}.validate().is_ok());
}

TEST(Problem, CheckRefusesHostileDescriptions) {
  const TensorDesc good = TensorDesc::contiguous(DType::kFloat32, {2, 3});
  Problem problem{.family = Family::kCopy, .inputs = {good}, .outputs = {good}};
  EXPECT_TRUE(check_operands(problem, Family::kCopy, 1).is_ok());
  EXPECT_FALSE(check_operands(problem, Family::kPool, 1).is_ok());
  EXPECT_FALSE(check_operands(problem, Family::kCopy, 2).is_ok());
  for (TensorDesc bad :
       {TensorDesc{static_cast<DType>(77), {2}, {1}}, TensorDesc{DType::kFloat32, {2, 3}, {3}},
        TensorDesc{DType::kFloat32, {-1}, {1}}, TensorDesc{DType::kFloat32, {1LL << 40, 1LL << 40}, {0, 0}},
        TensorDesc{DType::kFloat32, {3}, {INT64_MIN}}, TensorDesc{DType::kFloat32, {3}, {INT64_MAX}},
        TensorDesc{DType::kFloat32, Dims(9, 1), Dims(9, 1)}}) {
    problem.inputs = {bad};
    EXPECT_FALSE(check_operands(problem, Family::kCopy, 1).is_ok());
  }
}

TEST(Problem, TextSaysEverything) {
  Problem problem{
      .family = Family::kGemm,
      .inputs = {TensorDesc::contiguous(DType::kFloat32, {4, 8}), TensorDesc::contiguous(DType::kFloat32, {8, 2})},
      .constant = {false, true},
      .outputs = {TensorDesc{DType::kFloat32, {4, 2}, {6, 1}}},
      .ints = {0},
      .floats = {0.5},
      .program = Program::parse("r1 = relu r0 -> r1", 1).value()};
  EXPECT_EQ(problem.to_string(),
            "gemm f32 4x8, const f32 8x2 -> f32 4x2 strides 6,1 ints [0] floats [0.5] program {r1 = relu r0 -> r1}");
}

TEST(Tactic, ListsEndWithReference) {
  for (int family = 1; family < kFamilyCount; ++family) {
    auto list = tactics(static_cast<Family>(family));
    for (const Tactic& tactic : list) {
      EXPECT_EQ(tactic.family, static_cast<Family>(family)) << tactic.name;
      EXPECT_EQ(find_tactic(tactic.family, tactic.name), &tactic) << "two tactics are called " << tactic.name;
    }
    if (!list.empty()) {
      EXPECT_EQ(list.back().isa, Isa::kPortable) << family_name(list.back().family);
    }
  }
  EXPECT_EQ(find_tactic(Family::kCopy, "no such"), nullptr);
}

}  // namespace
}  // namespace flywheel::kernels
