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

// Reads the verified table. Many offsets may point to one string, vector or step, which the plan then holds many times:
// a budget stops the reading of a table that is made for that. An honest one needs a fraction of it.
class Decoder {
 public:
  explicit Decoder(size_t table_bytes) : left_(kBytesPerTableByte * table_bytes) {}

  Result<Plan> read(const fb::Plan& from) {
    Plan plan;
    plan.name = text(from.name());
    each(from.symbols(), plan.symbols, [&](const fb::Symbol* symbol) {
      return Symbol{text(symbol->name()), symbol->input(), symbol->dim()};
    });
    each(from.exprs(), plan.exprs, [&](const fb::Expr* expr) {
      Expr code;
      each(expr->code(), code, [](const fb::ExprCode* item) {
        return ExprCode{static_cast<DimExpr::Op>(item->op()), item->value()};
      });
      return code;
    });
    each(from.equalities(), plan.equalities, [](const fb::Equality* pair) { return std::pair(pair->a(), pair->b()); });
    each(from.inputs(), plan.inputs, [&](const fb::IoTensor* io) { return tensor(*io); });
    each(from.outputs(), plan.outputs, [&](const fb::IoTensor* io) { return tensor(*io); });
    each(from.steps(), plan.steps, [&](const fb::Step* from_step) { return step(*from_step); });
    plan.arena_bytes = from.arena_bytes();
    plan.workspace_bytes = from.workspace_bytes();
    each(from.latency_curve(), plan.latency_curve,
         [](const fb::LatencyPoint* point) { return std::pair(point->batch(), point->ms()); });
    plan.build_record = text(from.build_record());
    if (exhausted_) {
      return corrupt(
          "damaged engine: parts of its table are used so often that it would take many times the memory of "
          "its file; rebuild it");
    }
    return plan;
  }

 private:
  static constexpr uint64_t kBytesPerTableByte = 32;

  bool take(uint64_t bytes) {
    if (bytes > left_) exhausted_ = true;
    if (exhausted_) return false;
    left_ -= bytes;
    return true;
  }

  template <class From, class To, class Read>
  void each(const flatbuffers::Vector<From>* from, std::vector<To>& to, Read read) {
    if (from == nullptr) return;
    for (auto item : *from) {
      if (!take(sizeof(To))) return;
      to.push_back(read(item));
    }
  }

  template <class T>
  std::vector<T> values(const flatbuffers::Vector<T>* vector) {
    if (vector == nullptr || !take(uint64_t{vector->size()} * sizeof(T))) return {};
    return std::vector<T>(vector->begin(), vector->end());
  }

  std::string text(const flatbuffers::String* string) {
    return string == nullptr || !take(string->size()) ? std::string() : string->str();
  }

  std::vector<std::string> texts(const flatbuffers::Vector<Offset<flatbuffers::String>>* vector) {
    std::vector<std::string> out;
    each(vector, out, [&](const flatbuffers::String* string) { return text(string); });
    return out;
  }

  IoTensor tensor(const fb::IoTensor& io) {
    return {text(io.name()),   static_cast<DType>(io.dtype()),
            values(io.dims()), texts(io.dim_texts()),
            values(io.min()),  values(io.opt()),
            values(io.max())};
  }

  Operand operand(const fb::Operand& from) {
    return {static_cast<Space>(from.space()),
            from.base(),
            from.offset(),
            static_cast<DType>(from.dtype()),
            values(from.dims()),
            values(from.strides()),
            from.max_bytes()};
  }

  Step step(const fb::Step& from) {
    Step step;
    step.name = text(from.name());
    step.family = static_cast<kernels::Family>(from.family());
    step.tactic = text(from.tactic());
    each(from.inputs(), step.inputs, [&](const fb::Operand* input) { return operand(*input); });
    each(from.outputs(), step.outputs, [&](const fb::Operand* output) { return operand(*output); });
    step.output_names = texts(from.output_names());
    if (from.constant() != nullptr && take(from.constant()->size()))
      step.constant.assign(from.constant()->begin(), from.constant()->end());
    step.ints = values(from.ints());
    step.floats = values(from.floats());
    if (const fb::Program* program = from.program()) {
      step.program.compute = static_cast<DType>(program->compute());
      step.program.inputs = program->inputs();
      step.program.result = program->result();
      each(program->code(), step.program.code, [](const fb::Instruction* i) {
        return kernels::Instruction{
            static_cast<kernels::Opcode>(i->op()), i->dst(), i->a(), i->b(), i->c(), i->x(), i->y()};
      });
    }
    step.packed_offset = from.packed_offset();
    step.packed_bytes = from.packed_bytes();
    step.sources = texts(from.sources());
    step.problem = text(from.problem());
    step.tuned_ms = from.tuned_ms();
    return step;
  }

  uint64_t left_;
  bool exhausted_ = false;
};

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
  return Decoder(bytes.size()).read(*from);
}

}  // namespace flywheel::engine
