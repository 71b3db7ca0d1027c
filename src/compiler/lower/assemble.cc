// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/assemble.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/aligned_buffer.h"
#include "compiler/lower/memory_plan.h"

namespace flywheel::lower {
namespace {

// The weights section: blocks are 64-byte aligned; equal blocks are stored once.
class WeightsWriter {
 public:
  uint64_t add(std::span<const std::byte> bytes) {
    const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
    auto [begin, end] = known_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const auto& [offset, size] = it->second;
      if (size == bytes.size() && std::memcmp(data_.data() + offset, bytes.data(), size) == 0) return offset;
    }
    data_.resize((data_.size() + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment);
    const uint64_t offset = data_.size();
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    known_.emplace(hash, std::pair{offset, bytes.size()});
    return offset;
  }
  std::vector<std::byte> take() { return std::move(data_); }

 private:
  std::vector<std::byte> data_;
  std::unordered_multimap<uint64_t, std::pair<uint64_t, size_t>> known_;
};

class ExprTable {
 public:
  explicit ExprTable(const std::vector<engine::Symbol>& symbols) {
    for (size_t i = 0; i < symbols.size(); ++i) symbol_index_[symbols[i].name] = static_cast<int64_t>(i);
  }
  Result<engine::ExprId> add(const DimExpr& expr) {
    auto known = ids_.find(expr);
    if (known != ids_.end()) return known->second;
    engine::Expr code;
    Status status;
    expr.visit_postfix([&](DimExpr::Op op, int64_t value, std::string_view symbol) {
      if (op == DimExpr::Op::kSymbol) {
        auto it = symbol_index_.find(symbol);
        if (it == symbol_index_.end()) {
          status = unsupported(fmt::format("the extent '{}' depends on data ('{}'), not only on input shapes",
                                           expr.to_string(), symbol));
          return;
        }
        value = it->second;
      }
      code.push_back({op, value});
    });
    FW_RETURN_IF_ERROR(status);
    if (!engine::can_evaluate(code)) {
      return unsupported(
          fmt::format("an extent is too long or too deeply nested an expression of the input shapes ({} operations): "
                      "give more dims a fixed value",
                      code.size()));
    }
    const auto id = static_cast<engine::ExprId>(exprs_.size());
    exprs_.push_back(std::move(code));
    ids_.emplace(expr, id);
    return id;
  }
  Status add_all(const std::vector<DimExpr>& exprs, std::vector<engine::ExprId>& ids) {
    for (const DimExpr& expr : exprs) {
      FW_ASSIGN_OR_RETURN(engine::ExprId id, add(expr));
      ids.push_back(id);
    }
    return Status::ok();
  }
  std::vector<engine::Expr> take() { return std::move(exprs_); }

 private:
  std::map<std::string, int64_t, std::less<>> symbol_index_;
  std::map<DimExpr, engine::ExprId> ids_;
  std::vector<engine::Expr> exprs_;
};

Result<engine::Operand> make_operand(const View& view, DType dtype, ExprTable& exprs) {
  engine::Operand operand;
  operand.space = view.storage->space;
  operand.dtype = dtype;
  operand.max_bytes = view.storage->size_bytes;
  operand.base = view.storage->space == engine::Space::kArena || view.storage->space == engine::Space::kWeights
                     ? view.storage->offset
                     : static_cast<uint64_t>(view.storage->index);
  if (view.offset != DimExpr(0)) {
    FW_ASSIGN_OR_RETURN(operand.offset, exprs.add(view.offset));
  }
  FW_RETURN_IF_ERROR(exprs.add_all(view.dims, operand.dims));
  FW_RETURN_IF_ERROR(exprs.add_all(view.strides, operand.strides));
  return operand;
}

Result<engine::IoTensor> make_io(const ir::Value& value, const std::string& name, ExprTable& exprs) {
  engine::IoTensor io{name, value.dtype, {}, {}, {}, {}, {}};
  FW_RETURN_IF_ERROR(exprs.add_all(value.shape, io.dims));
  for (const DimExpr& dim : value.shape) io.dim_texts.push_back(dim.is_constant() ? "" : dim.to_string());
  return io;
}

}  // namespace

Result<SymbolTable> bind_symbols(const ir::Graph& graph, const std::map<std::string, ProfileShape>& profile) {
  SymbolTable table;
  for (const auto& [name, shape] : profile) {
    const bool known = std::any_of(graph.inputs().begin(), graph.inputs().end(),
                                   [&, &n = name](const ir::Value* v) { return v->name == n; });
    if (!known) {
      std::string names;
      for (const ir::Value* value : graph.inputs()) names += (names.empty() ? "" : ", ") + value->name;
      return invalid_argument(fmt::format("--profile names input '{}', but the model's inputs are: {}", name, names));
    }
  }
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ir::Value& input = *graph.inputs()[i];
    auto it = profile.find(input.name);
    if (it == profile.end()) return internal_error(fmt::format("input '{}' has no profile", input.name));
    const ProfileShape& shape = it->second;
    if (shape.min.size() != input.shape.size() || shape.opt.size() != input.shape.size() ||
        shape.max.size() != input.shape.size()) {
      return invalid_argument(fmt::format("the profile of input '{}' has rank {}, the model's shape is {}", input.name,
                                          shape.opt.size(), sym_shape_to_string(input.shape)));
    }
    for (size_t d = 0; d < input.shape.size(); ++d) {
      if (shape.min[d] < 0 || shape.min[d] > shape.opt[d] || shape.opt[d] > shape.max[d]) {
        return invalid_argument(
            fmt::format("the profile of input '{}' needs 0 <= min <= opt <= max, but dim {} has {}, {}, {}", input.name,
                        d, shape.min[d], shape.opt[d], shape.max[d]));
      }
      if (auto fixed = input.shape[d].constant()) {
        if (shape.min[d] != *fixed || shape.max[d] != *fixed) {
          return invalid_argument(
              fmt::format("dim {} of input '{}' is fixed to {} by the model, but the profile gives {} to {}", d,
                          input.name, *fixed, shape.min[d], shape.max[d]));
        }
        continue;
      }
      if (!input.shape[d].is_symbol())
        return internal_error(fmt::format("input '{}' has an extent that is not a symbol", input.name));
      const std::string symbol = input.shape[d].symbol_name();
      if (table.opt.contains(symbol)) {
        if (table.min[symbol] != shape.min[d] || table.opt[symbol] != shape.opt[d] ||
            table.max[symbol] != shape.max[d]) {
          return invalid_argument(fmt::format(
              "'{}' is one extent of several inputs, but dim {} of input '{}' has {}, {}, {} in the profile and "
              "another has {}, {}, {}: give the same",
              symbol, d, input.name, shape.min[d], shape.opt[d], shape.max[d], table.min[symbol], table.opt[symbol],
              table.max[symbol]));
        }
        continue;
      }
      table.symbols.push_back({symbol, static_cast<int32_t>(i), static_cast<int32_t>(d)});
      table.min[symbol] = shape.min[d];
      table.opt[symbol] = shape.opt[d];
      table.max[symbol] = shape.max[d];
    }
  }
  return table;
}

Result<Assembled> assemble(LoweredGraph& lowered, const std::vector<TacticChoice>& choices, const SymbolTable& symbols,
                           const std::map<std::string, ProfileShape>& profile, int threads, const Machine& machine) {
  Assembled out;
  engine::Plan& plan = out.plan;
  plan.name = lowered.graph->name;
  plan.symbols = symbols.symbols;
  ExprTable exprs(plan.symbols);
  WeightsWriter weights;

  FW_ASSIGN_OR_RETURN(plan.arena_bytes, plan_memory(lowered, symbols.min, symbols.max));
  for (const ir::Value* input : lowered.graph->inputs()) {
    FW_ASSIGN_OR_RETURN(engine::IoTensor io, make_io(*input, input->name, exprs));
    const ProfileShape& shape = profile.at(input->name);
    io.min = shape.min;
    io.opt = shape.opt;
    io.max = shape.max;
    plan.inputs.push_back(std::move(io));
  }
  for (size_t i = 0; i < lowered.graph->outputs().size(); ++i) {
    FW_ASSIGN_OR_RETURN(engine::IoTensor io,
                        make_io(*lowered.graph->outputs()[i], lowered.graph->output_names()[i], exprs));
    plan.outputs.push_back(std::move(io));
  }

  for (size_t i = 0; i < lowered.steps.size(); ++i) {
    const StepDraft& draft = lowered.steps[i];
    const kernels::Tactic& tactic = *choices[i].tactic;
    FW_ASSIGN_OR_RETURN(kernels::Problem problem, problem_for(draft, symbols.opt));
    engine::Step step;
    step.name = draft.name;
    step.family = draft.family;
    step.tactic = tactic.name;
    step.output_names = draft.output_names;
    step.floats = draft.floats;
    step.program = draft.program;
    step.sources = draft.sources;
    step.problem = problem.to_string();
    step.tuned_ms = choices[i].ms;
    plan.isa = std::max(plan.isa, tactic.isa);

    std::vector<bool> consumed(draft.inputs.size(), false);
    if (tactic.pack != nullptr) {
      std::vector<const void*> constants;
      for (const ir::ConstTensor* constant : draft.constants)
        constants.push_back(constant == nullptr ? nullptr : constant->data.get());
      Result<AlignedBuffer> packed = tactic.pack(problem, constants, consumed);
      if (!packed.is_ok())
        return packed.status().with_context(fmt::format("packing the weights of step '{}'", step.name));
      step.packed_bytes = packed->size_bytes();
      if (step.packed_bytes > 0) step.packed_offset = weights.add(packed->bytes());
    }
    for (size_t k = 0; k < draft.inputs.size(); ++k) {
      step.constant.push_back(draft.constants[k] != nullptr);
      Storage& storage = *draft.inputs[k].storage;
      if (storage.space == engine::Space::kWeights && !consumed[k]) {
        storage.offset = weights.add({storage.constant->data.get(), storage.constant->size_bytes()});
      }
      FW_ASSIGN_OR_RETURN(engine::Operand operand, make_operand(draft.inputs[k], draft.input_types[k], exprs));
      if (consumed[k]) {
        operand.space = engine::Space::kNone;
        operand.base = operand.max_bytes = 0;
      }
      step.inputs.push_back(std::move(operand));
    }
    for (size_t k = 0; k < draft.outputs.size(); ++k) {
      FW_ASSIGN_OR_RETURN(engine::Operand operand, make_operand(draft.outputs[k], draft.output_types[k], exprs));
      step.outputs.push_back(std::move(operand));
    }
    FW_RETURN_IF_ERROR(exprs.add_all(draft.ints, step.ints));

    FW_ASSIGN_OR_RETURN(kernels::Problem largest, problem_for(draft, symbols.max));
    Result<std::unique_ptr<kernels::BoundKernel>> bound = tactic.bind(largest, machine, threads);
    if (!bound.is_ok())
      return bound.status().with_context(fmt::format("step '{}' at the profile's maximum", step.name));
    plan.workspace_bytes = std::max<uint64_t>(plan.workspace_bytes, (*bound)->workspace_bytes());
    plan.steps.push_back(std::move(step));
  }
  for (const auto& [a, b] : lowered.graph->assumptions()) {
    FW_ASSIGN_OR_RETURN(engine::ExprId left, exprs.add(a));
    FW_ASSIGN_OR_RETURN(engine::ExprId right, exprs.add(b));
    plan.equalities.emplace_back(left, right);
  }
  plan.exprs = exprs.take();
  out.weights = weights.take();
  return out;
}

}  // namespace flywheel::lower
