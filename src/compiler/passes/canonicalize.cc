// SPDX-License-Identifier: Apache-2.0
// canonicalize: one spelling of arithmetic for the passes that look for patterns. Constants come second, a Sub of one
// is an Add, a Div by a power of two a Mul (others stay: x / c and x * (1 / c) round differently), Pow with a known
// exponent what it computes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool is_float_type(const Value& value) { return value.dtype == DType::kFloat32 || value.dtype == DType::kFloat64; }

bool commutes(const std::string& op) {
  return op == "Add" || op == "Mul" || op == "Max" || op == "Min" || op == "And" || op == "Or" || op == "Xor" ||
         op == "Equal";
}

bool is_power_of_two(double c) {
  int exponent = 0;
  return std::isfinite(c) && std::abs(std::frexp(c, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

Result<Value*> negated(Graph& graph, const Value& constant) {
  std::vector<double> values;
  for (int64_t i = 0; i < constant.constant->elements(); ++i) values.push_back(-constant.constant->as_double(i));
  FW_ASSIGN_OR_RETURN(ir::ConstTensor tensor, from_doubles(constant.dtype, constant.constant->dims, values));
  return graph.add_constant(constant.name, std::move(tensor));
}

// Null: it stays.
Result<Value*> power(Graph& graph, Node* node) {
  Value* x = node->input(0);
  std::optional<double> exponent = splat_constant(node->input(1));
  if (!exponent || x->shape != node->output()->shape) return nullptr;
  if (*exponent == 2) return add_before(graph, node, "Mul", {x, x});
  if (!is_float_type(*x)) return nullptr;
  if (*exponent == 0.5) return add_before(graph, node, "Sqrt", {x});
  if (*exponent == -1) return add_before(graph, node, "Reciprocal", {x});
  if (*exponent == -0.5) {
    FW_ASSIGN_OR_RETURN(Value * root, add_before(graph, node, "Sqrt", {x}));
    return add_before(graph, node, "Reciprocal", {root});
  }
  return nullptr;
}

Result<Value*> quotient(Graph& graph, Node* node) {
  if (!is_float_type(*node->output())) return nullptr;
  if (std::optional<double> one = scalar_constant(node->input(0));
      one && *one == 1 && node->input(1)->shape == node->output()->shape) {
    return add_before(graph, node, "Reciprocal", {node->input(1)});
  }
  std::optional<double> divisor = splat_constant(node->input(1));
  if (!divisor || !is_power_of_two(*divisor)) return nullptr;
  Value* factor = graph.add_constant(node->input(1)->name,
                                     filled(node->input(1)->dtype, node->input(1)->constant->dims, 1 / *divisor));
  return add_before(graph, node, "Mul", {node->input(0), factor});
}

struct Bounds {
  double low, high;
};

// Relu and Clip as the bounds that they hold x to.
std::optional<Bounds> bounds_of(const Node& node) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (node.op() == "Relu") return Bounds{0, infinity};
  if (node.op() != "Clip" || node.inputs().size() != 1) return std::nullopt;
  return Bounds{node.float_or("min", -infinity), node.float_or("max", infinity)};
}

// One after the other holds x to the inner bounds moved into the outer ones.
Result<Value*> clipped_twice(Graph& graph, Node* node) {
  const Node* inner = node->input(0) ? node->input(0)->producer() : nullptr;
  std::optional<Bounds> outer = bounds_of(*node);
  std::optional<Bounds> first = inner ? bounds_of(*inner) : std::nullopt;
  if (!outer || !is_float_type(*node->output())) return nullptr;
  if (!first) {
    const bool is_relu = node->op() == "Clip" && outer->low == 0 && std::isinf(outer->high) && outer->high > 0;
    return is_relu ? add_before(graph, node, "Relu", {node->input(0)}) : Result<Value*>(nullptr);
  }
  if (!(outer->low <= outer->high) || !(first->low <= first->high)) return nullptr;
  if (!inner->output()->single_user()) return nullptr;  // the inner one stays anyway
  const Bounds both{std::clamp(first->low, outer->low, outer->high), std::clamp(first->high, outer->low, outer->high)};
  const bool is_relu = both.low == 0 && std::isinf(both.high);
  Attributes attributes;
  if (!is_relu) attributes = {{"min", both.low}, {"max", both.high}};
  FW_ASSIGN_OR_RETURN(Value * made,
                      add_before(graph, node, is_relu ? "Relu" : "Clip", {inner->input(0)}, std::move(attributes)));
  made->producer()->sources = joined_sources({inner, node});
  return made;
}

Result<Value*> replacement(Graph& graph, Node* node) {
  const std::string& op = node->op();
  if (op == "Sub" && is_float_type(*node->output()) && node->input(1)->is_constant()) {
    FW_ASSIGN_OR_RETURN(Value * c, negated(graph, *node->input(1)));
    return add_before(graph, node, "Add", {node->input(0), c});
  }
  if (op == "Div") return quotient(graph, node);
  if (op == "Pow") return power(graph, node);
  if (op == "Max" && is_float_type(*node->output()) && node->inputs().size() == 2) {
    std::optional<double> low = scalar_constant(node->input(1));
    if (low && *low == 0 && node->input(0)->shape == node->output()->shape) {
      return add_before(graph, node, "Relu", {node->input(0)});
    }
  }
  if (op == "Relu" || op == "Clip") return clipped_twice(graph, node);
  if (op == "Where") {
    if (Node* inverted = made_by(node->input(0), "Not")) {
      return add_before(graph, node, "Where", {inverted->input(0), node->input(2), node->input(1)});
    }
  }
  if (op == "Not") {
    if (Node* inner = made_by(node->input(0), "Not")) return add_before(graph, node, "Identity", {inner->input(0)});
  }
  return nullptr;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    if (node->outputs().size() != 1) continue;
    if (commutes(node->op()) && node->inputs().size() == 2 && node->input(0)->is_constant() &&
        !node->input(1)->is_constant()) {
      Value* constant = node->input(0);
      graph.set_input(node, 0, node->input(1));
      graph.set_input(node, 1, constant);
      changed = true;
    }
    FW_ASSIGN_OR_RETURN(Value * made, replacement(graph, node));
    if (!made) continue;
    FW_RETURN_IF_ERROR(replace_node(graph, node, made));
    changed = true;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kCanonicalize{"canonicalize", run, false};

}  // namespace flywheel::passes
