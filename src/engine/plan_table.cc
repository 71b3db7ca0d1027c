// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_table.h"

#include "engine_generated.h"

namespace flywheel::engine {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

std::vector<Offset<flatbuffers::String>> strings(FlatBufferBuilder& builder, const std::vector<std::string>& texts) {
  std::vector<Offset<flatbuffers::String>> out;
  for (const std::string& text : texts) out.push_back(builder.CreateString(text));
  return out;
}

Offset<fb::IoTensor> encode_io(FlatBufferBuilder& builder, const IoTensor& io) {
  auto name = builder.CreateString(io.name);
  auto dims = builder.CreateVector(io.dims);
  auto texts = builder.CreateVector(strings(builder, io.dim_texts));
  auto min = builder.CreateVector(io.min), opt = builder.CreateVector(io.opt), max = builder.CreateVector(io.max);
  return fb::CreateIoTensor(builder, name, static_cast<uint8_t>(io.dtype), dims, texts, min, opt, max);
}

Offset<fb::Operand> encode_operand(FlatBufferBuilder& builder, const Operand& operand) {
  auto dims = builder.CreateVector(operand.dims), strides = builder.CreateVector(operand.strides);
  return fb::CreateOperand(builder, static_cast<uint8_t>(operand.space), operand.base, operand.offset,
                           static_cast<uint8_t>(operand.dtype), dims, strides, operand.max_bytes);
}

Offset<fb::Step> encode_step(FlatBufferBuilder& builder, const Step& step) {
  auto operands = [&](const std::vector<Operand>& list) {
    std::vector<Offset<fb::Operand>> out;
    for (const Operand& operand : list) out.push_back(encode_operand(builder, operand));
    return builder.CreateVector(out);
  };
  std::vector<fb::Instruction> code;
  for (const kernels::Instruction& i : step.program.code) {
    code.emplace_back(static_cast<uint8_t>(i.op), i.dst, i.a, i.b, i.c, i.x, i.y);
  }
  auto program_code = builder.CreateVectorOfStructs(code);
  auto program = fb::CreateProgram(builder, static_cast<uint8_t>(step.program.compute), step.program.inputs,
                                   program_code, step.program.result);
  auto name = builder.CreateString(step.name), tactic = builder.CreateString(step.tactic);
  auto inputs = operands(step.inputs), outputs = operands(step.outputs);
  auto output_names = builder.CreateVector(strings(builder, step.output_names));
  auto constant = builder.CreateVector(std::vector<uint8_t>(step.constant.begin(), step.constant.end()));
  auto ints = builder.CreateVector(step.ints);
  auto floats = builder.CreateVector(step.floats);
  auto sources = builder.CreateVector(strings(builder, step.sources));
  auto problem = builder.CreateString(step.problem);
  return fb::CreateStep(builder, name, static_cast<uint16_t>(step.family), tactic, inputs, outputs, output_names,
                        constant, ints, floats, program, step.packed_offset, step.packed_bytes, sources, problem,
                        step.tuned_ms);
}

template <class T>
std::vector<T> values(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? std::vector<T>() : std::vector<T>(vector->begin(), vector->end());
}

// The verifier looks at the alignment of a vector's length, not of its elements, which are read in place.
template <class Vector>
bool is_aligned(const Vector* vector) {
  return vector == nullptr || vector->size() == 0 || reinterpret_cast<uintptr_t>(vector->Data()) % 8 == 0;
}

bool is_aligned(const fb::Plan& plan) {
  bool good = is_aligned(plan.latency_curve());
  auto check_io = [&](const flatbuffers::Vector<Offset<fb::IoTensor>>* list) {
    if (list == nullptr) return;
    for (const fb::IoTensor* io : *list)
      good = good && is_aligned(io->min()) && is_aligned(io->opt()) && is_aligned(io->max());
  };
  check_io(plan.inputs());
  check_io(plan.outputs());
  if (plan.exprs() != nullptr) {
    for (const fb::Expr* expr : *plan.exprs()) good = good && is_aligned(expr->code());
  }
  if (plan.steps() != nullptr) {
    for (const fb::Step* step : *plan.steps()) {
      good = good && is_aligned(step->floats()) && (step->program() == nullptr || is_aligned(step->program()->code()));
    }
  }
  return good;
}

std::string text(const flatbuffers::String* string) { return string == nullptr ? std::string() : string->str(); }

std::vector<std::string> texts(const flatbuffers::Vector<Offset<flatbuffers::String>>* vector) {
  std::vector<std::string> out;
  if (vector != nullptr) {
    for (const flatbuffers::String* string : *vector) out.push_back(text(string));
  }
  return out;
}

IoTensor decode_io(const fb::IoTensor& io) {
  return {text(io.name()),   static_cast<DType>(io.dtype()),
          values(io.dims()), texts(io.dim_texts()),
          values(io.min()),  values(io.opt()),
          values(io.max())};
}

Operand decode_operand(const fb::Operand& operand) {
  return {static_cast<Space>(operand.space()),
          operand.base(),
          operand.offset(),
          static_cast<DType>(operand.dtype()),
          values(operand.dims()),
          values(operand.strides()),
          operand.max_bytes()};
}

Step decode_step(const fb::Step& from) {
  Step step;
  step.name = text(from.name());
  step.family = static_cast<kernels::Family>(from.family());
  step.tactic = text(from.tactic());
  if (from.inputs() != nullptr) {
    for (const fb::Operand* operand : *from.inputs()) step.inputs.push_back(decode_operand(*operand));
  }
  if (from.outputs() != nullptr) {
    for (const fb::Operand* operand : *from.outputs()) step.outputs.push_back(decode_operand(*operand));
  }
  step.output_names = texts(from.output_names());
  if (from.constant() != nullptr) step.constant.assign(from.constant()->begin(), from.constant()->end());
  step.ints = values(from.ints());
  step.floats = values(from.floats());
  if (const fb::Program* program = from.program()) {
    step.program.compute = static_cast<DType>(program->compute());
    step.program.inputs = program->inputs();
    step.program.result = program->result();
    if (program->code() != nullptr) {
      for (const fb::Instruction* i : *program->code()) {
        step.program.code.push_back(
            {static_cast<kernels::Opcode>(i->op()), i->dst(), i->a(), i->b(), i->c(), i->x(), i->y()});
      }
    }
  }
  step.packed_offset = from.packed_offset();
  step.packed_bytes = from.packed_bytes();
  step.sources = texts(from.sources());
  step.problem = text(from.problem());
  step.tuned_ms = from.tuned_ms();
  return step;
}

}  // namespace

std::vector<std::byte> encode_plan(const Plan& plan) {
  FlatBufferBuilder builder(1 << 16);
  std::vector<Offset<fb::Symbol>> symbols;
  for (const Symbol& symbol : plan.symbols) {
    symbols.push_back(fb::CreateSymbol(builder, builder.CreateString(symbol.name), symbol.input, symbol.dim));
  }
  std::vector<Offset<fb::Expr>> exprs;
  for (const Expr& expr : plan.exprs) {
    std::vector<fb::ExprCode> code;
    for (const ExprCode& item : expr) code.emplace_back(static_cast<uint8_t>(item.op), item.value);
    exprs.push_back(fb::CreateExpr(builder, builder.CreateVectorOfStructs(code)));
  }
  std::vector<fb::Equality> equalities;
  for (const auto& [a, b] : plan.equalities) equalities.emplace_back(a, b);
  std::vector<Offset<fb::IoTensor>> inputs, outputs;
  for (const IoTensor& io : plan.inputs) inputs.push_back(encode_io(builder, io));
  for (const IoTensor& io : plan.outputs) outputs.push_back(encode_io(builder, io));
  std::vector<Offset<fb::Step>> steps;
  for (const Step& step : plan.steps) steps.push_back(encode_step(builder, step));
  std::vector<fb::LatencyPoint> curve;
  for (const auto& [batch, ms] : plan.latency_curve) curve.emplace_back(batch, ms);
  auto name = builder.CreateString(plan.name), record = builder.CreateString(plan.build_record);
  auto symbols_vector = builder.CreateVector(symbols);
  auto exprs_vector = builder.CreateVector(exprs);
  auto equalities_vector = builder.CreateVectorOfStructs(equalities);
  auto inputs_vector = builder.CreateVector(inputs), outputs_vector = builder.CreateVector(outputs);
  auto steps_vector = builder.CreateVector(steps);
  auto curve_vector = builder.CreateVectorOfStructs(curve);
  builder.Finish(fb::CreatePlan(builder, name, symbols_vector, exprs_vector, equalities_vector, inputs_vector,
                                outputs_vector, steps_vector, plan.arena_bytes, plan.workspace_bytes, curve_vector,
                                record));
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {begin, begin + builder.GetSize()};
}

Result<Plan> decode_plan(std::span<const std::byte> bytes) {
  // Limits keep a hostile table from costing more than its size is worth.
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), /*max_depth=*/16,
                                 /*max_tables=*/4'000'000);
  if (bytes.size() < 8 || !fb::VerifyPlanBuffer(verifier))
    return corrupt("the engine's table is damaged: rebuild the engine");
  const fb::Plan* from = fb::GetPlan(bytes.data());
  if (!is_aligned(*from)) return corrupt("the engine's table is damaged: rebuild the engine");
  Plan plan;
  plan.name = text(from->name());
  if (from->symbols() != nullptr) {
    for (const fb::Symbol* symbol : *from->symbols())
      plan.symbols.push_back({text(symbol->name()), symbol->input(), symbol->dim()});
  }
  if (from->exprs() != nullptr) {
    for (const fb::Expr* expr : *from->exprs()) {
      Expr code;
      if (expr->code() != nullptr) {
        for (const fb::ExprCode* item : *expr->code())
          code.push_back({static_cast<DimExpr::Op>(item->op()), item->value()});
      }
      plan.exprs.push_back(std::move(code));
    }
  }
  if (from->equalities() != nullptr) {
    for (const fb::Equality* pair : *from->equalities()) plan.equalities.emplace_back(pair->a(), pair->b());
  }
  if (from->inputs() != nullptr) {
    for (const fb::IoTensor* io : *from->inputs()) plan.inputs.push_back(decode_io(*io));
  }
  if (from->outputs() != nullptr) {
    for (const fb::IoTensor* io : *from->outputs()) plan.outputs.push_back(decode_io(*io));
  }
  if (from->steps() != nullptr) {
    for (const fb::Step* step : *from->steps()) plan.steps.push_back(decode_step(*step));
  }
  plan.arena_bytes = from->arena_bytes();
  plan.workspace_bytes = from->workspace_bytes();
  if (from->latency_curve() != nullptr) {
    for (const fb::LatencyPoint* point : *from->latency_curve())
      plan.latency_curve.emplace_back(point->batch(), point->ms());
  }
  plan.build_record = text(from->build_record());
  return plan;
}

}  // namespace flywheel::engine
