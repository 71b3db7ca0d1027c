// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/plan_table.h"
#include "engine/test_plan.h"
#include "engine_generated.h"

namespace flywheel::engine {
namespace {

Machine test_machine() {
  Machine machine;
  machine.isa = machine.hardware_isa = Isa::kPortable;
  machine.cpu_name = "a test CPU";
  return machine;
}

std::vector<std::byte> good_file() { return encode_engine(copy_plan(), std::vector<std::byte>(100, std::byte{7})); }

Status read_status(std::span<const std::byte> bytes) { return read_engine_bytes(bytes, test_machine()).status(); }

void put_u32(std::vector<std::byte>& bytes, size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); }

TEST(EngineFile, ReadsBackWhatWasWritten) {
  const std::vector<std::byte> bytes = good_file();
  auto engine = read_engine_bytes(bytes, test_machine());
  ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
  const Plan plan = copy_plan();
  EXPECT_EQ(engine->plan.name, plan.name);
  EXPECT_EQ(engine->plan.model_hash, plan.model_hash);
  EXPECT_EQ(engine->plan.exprs, plan.exprs);
  ASSERT_EQ(engine->plan.steps.size(), plan.steps.size());
  EXPECT_EQ(engine->plan.steps[0].tactic, plan.steps[0].tactic);
  EXPECT_EQ(engine->plan.steps[0].sources, plan.steps[0].sources);
  EXPECT_EQ(engine->plan.inputs[0].max, plan.inputs[0].max);
  EXPECT_EQ(engine->plan.latency_curve, plan.latency_curve);
  EXPECT_EQ(engine->weights.size(), 100U);
  EXPECT_EQ(engine->weights[99], std::byte{7});
}

TEST(EngineFile, SamePlanGivesSameBytes) { EXPECT_EQ(good_file(), good_file()); }

TEST(EngineFile, RefusesOtherFiles) {
  const std::string text =
      "PK\x03\x04 this is not an engine at all, but long enough to have a header, had it been one. "
      "Filling up to more than 128 bytes.";
  const Status status = read_status(std::as_bytes(std::span(text.data(), text.size())));
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("does not begin with its magic"), std::string::npos);
  EXPECT_EQ(read_status({}).code(), Code::kCorrupt);
}

TEST(EngineFile, RefusesEveryTruncation) {
  const std::vector<std::byte> bytes = good_file();
  for (size_t size = 0; size < bytes.size(); size += size < 256 ? 1 : 97) {
    EXPECT_EQ(read_status(std::span(bytes).first(size)).code(), Code::kCorrupt) << size;
  }
}

TEST(EngineFile, RefusesEveryFlippedBit) {
  const std::vector<std::byte> bytes = good_file();
  auto engine = read_engine_bytes(bytes, test_machine());
  ASSERT_TRUE(engine.is_ok());
  const Header& header = engine->header;
  auto covered = [&](size_t i) {
    return i < header.table_offset + header.table_bytes || i >= header.weights_offset;  // between them is padding
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!covered(i)) continue;
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    EXPECT_FALSE(read_status(damaged).is_ok()) << "byte " << i;
  }
}

TEST(EngineFile, SaysWhichVersionItNeeds) {
  std::vector<std::byte> bytes = good_file();
  put_u32(bytes, 8, 77);
  const Status status = read_status(bytes);
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("format version 77, this Flywheel reads version 1"), std::string::npos);
}

TEST(EngineFile, ChecksMachineBeforeLoading) {
  Header header;
  header.library_version = kKernelLibraryVersion;
  header.device = 1;
  header.isa = Isa::kAvx512;
  Status status = check(header, test_machine());
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("needs avx512, but a test CPU has portable at most"), std::string::npos);
  header.isa = Isa::kPortable;
  EXPECT_TRUE(check(header, test_machine()).is_ok());
  header.device = 2;
  EXPECT_NE(check(header, test_machine()).message().find("device kind 2"), std::string::npos);
  header.device = 1;
  header.library_version = kKernelLibraryVersion + 1;
  EXPECT_NE(check(header, test_machine()).message().find("kernel library version"), std::string::npos);
}

// A hostile file has right checksums: the plan inside must be checked as well.
struct Tampering {
  const char* name;
  void (*apply)(Plan&);
  Code expected;
};

TEST(EngineFile, RefusesHostilePlans) {
  const Tampering kTamperings[] = {
      {"operand past the weights",
       [](Plan& p) {
         p.steps[0].inputs[0].space = Space::kWeights;
         p.steps[0].inputs[0].base = 90;
         p.steps[0].inputs[0].max_bytes = 11;
       },
       Code::kCorrupt},
      {"operand offset overflow",
       [](Plan& p) {
         p.steps[0].inputs[0].space = Space::kArena;
         p.steps[0].inputs[0].base = UINT64_MAX - 3;
         p.steps[0].inputs[0].max_bytes = 100;
       },
       Code::kCorrupt},
      {"unknown input", [](Plan& p) { p.steps[0].inputs[0].base = 5; }, Code::kCorrupt},
      {"unknown output", [](Plan& p) { p.steps[0].outputs[0].base = 1; }, Code::kCorrupt},
      {"unknown space", [](Plan& p) { p.steps[0].inputs[0].space = static_cast<Space>(9); }, Code::kCorrupt},
      {"writes the weights",
       [](Plan& p) {
         p.steps[0].outputs[0].space = Space::kWeights;
         p.steps[0].outputs[0].max_bytes = 4;
       },
       Code::kCorrupt},
      {"expression index", [](Plan& p) { p.steps[0].inputs[0].dims[0] = 99; }, Code::kCorrupt},
      {"negative expression index", [](Plan& p) { p.steps[0].inputs[0].strides[0] = -7; }, Code::kCorrupt},
      {"expression underflow",
       [](Plan& p) {
         p.exprs[0] = {{DimExpr::Op::kAdd, 0}};
       },
       Code::kCorrupt},
      {"expression symbol",
       [](Plan& p) {
         p.exprs[0] = {{DimExpr::Op::kSymbol, 3}};
       },
       Code::kCorrupt},
      {"expression operation",
       [](Plan& p) {
         p.exprs[0] = {{static_cast<DimExpr::Op>(200), 0}};
       },
       Code::kCorrupt},
      {"expression too deep",
       [](Plan& p) {
         p.exprs[0] = Expr(100, {DimExpr::Op::kConst, 1});
       },
       Code::kCorrupt},
      {"unknown kernel", [](Plan& p) { p.steps[0].tactic = "copy_f32_future"; }, Code::kIncompatible},
      {"unknown family", [](Plan& p) { p.steps[0].family = static_cast<kernels::Family>(1000); }, Code::kCorrupt},
      {"profile order", [](Plan& p) { p.inputs[0].min[0] = 9; }, Code::kCorrupt},
      {"profile rank", [](Plan& p) { p.inputs[0].opt.pop_back(); }, Code::kCorrupt},
      {"symbol from nowhere", [](Plan& p) { p.symbols[0].input = 4; }, Code::kCorrupt},
      {"huge arena", [](Plan& p) { p.arena_bytes = UINT64_MAX; }, Code::kCorrupt},
      {"packed weights outside",
       [](Plan& p) {
         p.steps[0].packed_offset = 64;
         p.steps[0].packed_bytes = 64;
       },
       Code::kCorrupt},
      {"packed weights unaligned",
       [](Plan& p) {
         p.steps[0].packed_offset = 3;
         p.steps[0].packed_bytes = 4;
       },
       Code::kCorrupt},
      {"program register", [](Plan& p) { p.steps[0].program.result = 31; }, Code::kCorrupt},
      {"no outputs", [](Plan& p) { p.steps[0].outputs.clear(); }, Code::kCorrupt},
      {"type of an operand", [](Plan& p) { p.steps[0].inputs[0].dtype = static_cast<DType>(99); }, Code::kCorrupt},
      {"two inputs of one name", [](Plan& p) { p.inputs.push_back(p.inputs[0]); }, Code::kCorrupt},
      {"latency that is no number", [](Plan& p) { p.latency_curve[0].second = std::nan(""); }, Code::kCorrupt},
      {"endless latency", [](Plan& p) { p.latency_curve[1].second = HUGE_VAL; }, Code::kCorrupt},
      {"negative latency", [](Plan& p) { p.latency_curve[1].second = -1; }, Code::kCorrupt},
      {"latency curve's order", [](Plan& p) { p.latency_curve[1].first = 1; }, Code::kCorrupt},
      {"equality index", [](Plan& p) { p.equalities.emplace_back(0, 1000); }, Code::kCorrupt},
  };
  for (const Tampering& tampering : kTamperings) {
    Plan plan = copy_plan();
    tampering.apply(plan);
    const Status status = read_status(encode_engine(plan, std::vector<std::byte>(100)));
    EXPECT_EQ(status.code(), tampering.expected) << tampering.name << ": " << status.to_string();
  }
}

// 64 values on the stack at once are the most that the evaluator has room for.
TEST(Plan, EvaluatesExpressionsToTheirGreatestDepth) {
  auto nested = [](int depth) {
    Expr expr(static_cast<size_t>(depth), {DimExpr::Op::kConst, 1});
    expr.insert(expr.end(), static_cast<size_t>(depth - 1), {DimExpr::Op::kAdd, 0});
    return expr;
  };
  Plan plan = copy_plan();
  plan.exprs.push_back(nested(64));
  EXPECT_TRUE(can_evaluate(plan.exprs.back()));
  auto values = evaluate_exprs(plan, std::vector<Dims>{{3, 4}});
  ASSERT_TRUE(values.is_ok()) << values.status().to_string();
  EXPECT_EQ(values->back(), 64);
  EXPECT_FALSE(can_evaluate(nested(65)));
  EXPECT_FALSE(can_evaluate({}));
  EXPECT_FALSE(can_evaluate({{DimExpr::Op::kConst, 1}, {DimExpr::Op::kConst, 1}}));
  plan.exprs.back() = nested(65);
  EXPECT_EQ(read_status(encode_engine(plan, std::vector<std::byte>(100))).code(), Code::kCorrupt);
}

TEST(Plan, DividesAtTheEdgesOf64Bits) {
  auto evaluate = [](int64_t a, int64_t b, DimExpr::Op op) {
    Plan plan = copy_plan();
    plan.exprs.push_back({{DimExpr::Op::kConst, a}, {DimExpr::Op::kConst, b}, {op, 0}});
    auto values = evaluate_exprs(plan, std::vector<Dims>{{3, 4}});
    return values.is_ok() ? Result<int64_t>(values->back()) : Result<int64_t>(values.status());
  };
  using Op = DimExpr::Op;
  EXPECT_EQ(*evaluate(INT64_MIN, 3, Op::kMod), 1);
  EXPECT_EQ(*evaluate(INT64_MIN, 3, Op::kFloorDiv), -3074457345618258603);
  EXPECT_EQ(*evaluate(-7, 2, Op::kFloorDiv), -4);
  EXPECT_EQ(*evaluate(-7, 2, Op::kMod), 1);
  EXPECT_EQ(*evaluate(7, -2, Op::kMod), -1);
  EXPECT_EQ(*evaluate(INT64_MIN, -1, Op::kMod), 0);
  EXPECT_NE(evaluate(INT64_MIN, -1, Op::kFloorDiv).status().message().find("overflows"), std::string::npos);
  EXPECT_NE(evaluate(1, 0, Op::kMod).status().message().find("divides by zero"), std::string::npos);
}

std::vector<std::byte> table_of_one_step(size_t times) {
  flatbuffers::FlatBufferBuilder builder;
  const auto problem = builder.CreateString(std::string(4000, 'p'));
  fb::StepBuilder step(builder);
  step.add_problem(problem);
  const auto steps = builder.CreateVector(std::vector<flatbuffers::Offset<fb::Step>>(times, step.Finish()));
  fb::PlanBuilder plan(builder);
  plan.add_steps(steps);
  builder.Finish(plan.Finish());
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {begin, begin + builder.GetSize()};
}

// Each mention of a step costs four bytes in the table and thousands in the plan.
TEST(PlanTable, RefusesPartsThatAreSharedWithoutMeasure) {
  const auto few = decode_plan(table_of_one_step(3));
  ASSERT_TRUE(few.is_ok()) << few.status().to_string();
  ASSERT_EQ(few->steps.size(), 3U);
  EXPECT_EQ(few->steps[2].problem.size(), 4000U);
  const Status many = decode_plan(table_of_one_step(10000)).status();
  EXPECT_EQ(many.code(), Code::kCorrupt);
  EXPECT_NE(many.message().find("many times the memory"), std::string::npos) << many.message();
}

TEST(Plan, EvaluatesExpressionsAndNamesWhatDoesNotFit) {
  const Plan plan = copy_plan();
  auto values = evaluate_exprs(plan, std::vector<Dims>{{3, 4}});
  ASSERT_TRUE(values.is_ok()) << values.status().to_string();
  EXPECT_EQ((*values)[0], 3);
  EXPECT_EQ((*values)[1], 4);
  const Status high = evaluate_exprs(plan, std::vector<Dims>{{9, 4}}).status();
  EXPECT_EQ(high.code(), Code::kInvalidArgument);
  EXPECT_NE(high.message().find("input 'x' dim 0 (n) is 9, outside the engine's profile [1, 8]"), std::string::npos)
      << high.message();
  EXPECT_NE(evaluate_exprs(plan, std::vector<Dims>{{3}}).status().message().find("rank 1"), std::string::npos);
  Plan unequal = copy_plan();
  unequal.equalities.emplace_back(0, 1);
  EXPECT_TRUE(evaluate_exprs(unequal, std::vector<Dims>{{4, 4}}).is_ok());
  EXPECT_EQ(evaluate_exprs(unequal, std::vector<Dims>{{3, 4}}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace flywheel::engine
