// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.h"

#include <fmt/format.h>

#include "tensor/floor_div.h"

namespace flywheel::engine {
namespace {

Result<int64_t> evaluate(const Expr& expr, std::span<const int64_t> symbols) {
  int64_t stack[kMaxExprDepth];  // check_plan() has seen that the code is well formed and needs no more
  int depth = 0;
  for (const ExprCode& code : expr) {
    if (code.op == DimExpr::Op::kConst) {
      stack[depth++] = code.value;
      continue;
    }
    if (code.op == DimExpr::Op::kSymbol) {
      stack[depth++] = symbols[static_cast<size_t>(code.value)];
      continue;
    }
    const int64_t b = stack[--depth], a = stack[depth - 1];
    int64_t& out = stack[depth - 1];
    bool overflow = false;
    switch (code.op) {
      case DimExpr::Op::kAdd: overflow = __builtin_add_overflow(a, b, &out); break;
      case DimExpr::Op::kMul: overflow = __builtin_mul_overflow(a, b, &out); break;
      case DimExpr::Op::kFloorDiv:
        if (b == 0) return invalid_argument("a shape expression divides by zero");
        overflow = b == -1 && a == INT64_MIN;
        if (!overflow) out = floor_div_int(a, b);
        break;
      case DimExpr::Op::kMod:
        if (b == 0) return invalid_argument("a shape expression divides by zero");
        out = mod_int(a, b);
        break;
      case DimExpr::Op::kMin: out = a < b ? a : b; break;
      case DimExpr::Op::kMax: out = a > b ? a : b; break;
      default: return internal_error("unknown operation in a shape expression");
    }
    if (overflow) return invalid_argument("a shape expression overflows 64 bits: use smaller shapes");
  }
  return stack[0];
}

std::vector<int64_t> look_up(const std::vector<ExprId>& ids, std::span<const int64_t> values) {
  std::vector<int64_t> out;
  out.reserve(ids.size());
  for (ExprId id : ids) out.push_back(values[static_cast<size_t>(id)]);
  return out;
}

Result<TensorDesc> bind_operand(const Operand& operand, std::span<const int64_t> values) {
  TensorDesc desc;
  desc.dtype = operand.dtype;
  desc.dims = look_up(operand.dims, values);
  desc.strides = look_up(operand.strides, values);
  if (!checked_element_count(desc.dims)) {
    return invalid_argument(fmt::format("an operand of shape {} is too large or negative", dims_to_string(desc.dims)));
  }
  return desc;
}

}  // namespace

bool can_evaluate(const Expr& expr) {
  if (expr.empty() || expr.size() > kMaxExprCode) return false;
  int depth = 0;
  for (const ExprCode& code : expr) {
    depth += code.op == DimExpr::Op::kConst || code.op == DimExpr::Op::kSymbol ? 1 : -1;
    if (depth < 1 || depth > kMaxExprDepth) return false;
  }
  return depth == 1;
}

Result<kernels::Problem> bind_problem(const Step& step, std::span<const int64_t> values) {
  kernels::Problem problem;
  problem.family = step.family;
  problem.constant = step.constant;
  problem.floats = step.floats;
  problem.program = step.program;
  for (const Operand& operand : step.inputs) {
    FW_ASSIGN_OR_RETURN(TensorDesc desc, bind_operand(operand, values));
    problem.inputs.push_back(std::move(desc));
  }
  for (const Operand& operand : step.outputs) {
    FW_ASSIGN_OR_RETURN(TensorDesc desc, bind_operand(operand, values));
    problem.outputs.push_back(std::move(desc));
  }
  problem.ints = look_up(step.ints, values);
  return problem;
}

Result<std::vector<int64_t>> evaluate_exprs(const Plan& plan, std::span<const Dims> input_dims) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const IoTensor& input = plan.inputs[i];
    const Dims& dims = input_dims[i];
    if (dims.size() != input.min.size()) {
      return invalid_argument(fmt::format("input '{}' has rank {} ({}), but the engine expects rank {}", input.name,
                                          dims.size(), dims_to_string(dims), input.min.size()));
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] < input.min[d] || dims[d] > input.max[d]) {
        return invalid_argument(
            fmt::format("input '{}' dim {}{} is {}, outside the engine's profile [{}, {}]: use a shape "
                        "in that range or rebuild with --profile",
                        input.name, d, input.dim_texts[d].empty() ? "" : fmt::format(" ({})", input.dim_texts[d]),
                        dims[d], input.min[d], input.max[d]));
      }
    }
  }
  std::vector<int64_t> symbols;
  for (const Symbol& symbol : plan.symbols) {
    symbols.push_back(input_dims[static_cast<size_t>(symbol.input)][static_cast<size_t>(symbol.dim)]);
  }
  std::vector<int64_t> values;
  values.reserve(plan.exprs.size());
  for (const Expr& expr : plan.exprs) {
    FW_ASSIGN_OR_RETURN(int64_t value, evaluate(expr, symbols));
    values.push_back(value);
  }
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    for (size_t d = 0; d < plan.inputs[i].dims.size(); ++d) {
      const int64_t expected = values[static_cast<size_t>(plan.inputs[i].dims[d])];
      if (expected != input_dims[i][d]) {
        return invalid_argument(
            fmt::format("input '{}' dim {} is {}, but '{}' is {} from another input: they must be equal",
                        plan.inputs[i].name, d, input_dims[i][d], plan.inputs[i].dim_texts[d], expected));
      }
    }
  }
  for (const auto& [a, b] : plan.equalities) {
    if (values[static_cast<size_t>(a)] != values[static_cast<size_t>(b)]) {
      return invalid_argument(
          fmt::format("these input shapes do not fit together: an operator of the model needs {} and {} to be "
                      "equal",
                      values[static_cast<size_t>(a)], values[static_cast<size_t>(b)]));
    }
  }
  return values;
}

}  // namespace flywheel::engine
