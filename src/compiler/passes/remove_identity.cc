// SPDX-License-Identifier: Apache-2.0
// remove_identity: operators that change nothing go: Identity, Dropout, a Cast to the same type, moves that move
// nothing, a Concat of one, arithmetic with a neutral constant.
#include <algorithm>

#include "compiler/ops/infer.h"
#include "compiler/passes/layout_plan.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool all_equal(const std::optional<SymShape>& values, int64_t to) {
  return values && std::all_of(values->begin(), values->end(), [&](const DimExpr& v) { return v == DimExpr(to); });
}

bool is_neutral_arithmetic(const Node& node, size_t& kept) {
  const std::string& op = node.op();
  const bool commutes = op == "Add" || op == "Mul" || op == "And" || op == "Or";
  if (!commutes && op != "Sub" && op != "Div" && op != "Pow") return false;
  const double neutral = op == "Add" || op == "Sub" || op == "Or" ? 0 : 1;
  for (size_t constant : {size_t{1}, size_t{0}}) {
    if (constant == 0 && !commutes) continue;
    std::optional<double> c = splat_constant(node.input(constant));
    if (!c || *c != neutral) continue;
    kept = 1 - constant;
    return true;
  }
  return false;
}

// The operand that the node's only used output equals in value, before shapes and types are compared.
const Value* passed_through(const Node& node) {
  const std::string& op = node.op();
  const Value* x = node.input(0);
  size_t kept = 0;
  if (op == "Identity" || op == "Dropout" || op == "Cast" || op == "Reshape" || op == "Expand") return x;
  if (op == "Transpose") {
    return node.ints_or("perm", {}) == identity_perm(static_cast<size_t>(node.output()->rank())) ? x : nullptr;
  }
  if (op == "Slice") {
    const std::vector<int64_t> steps = node.ints_or("steps", {});
    return std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; }) ? x : nullptr;
  }
  if (op == "Concat" || op == "Split") return node.inputs().size() == 1 && node.outputs().size() == 1 ? x : nullptr;
  if (op == "Pad") return all_equal(ops::dims_attribute(node, "pads"), 0) ? x : nullptr;
  if (op == "Tile") return all_equal(ops::dims_attribute(node, "repeats"), 1) ? x : nullptr;
  if (op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax" || op == "ReduceMin" || op == "ReduceProd") {
    // Over dims of 1 only; with keepdims the shape is then the same.
    const std::vector<size_t> axes = reduced_axes(node);
    const bool ones = std::all_of(axes.begin(), axes.end(), [&](size_t a) { return x->shape[a] == DimExpr(1); });
    return ones ? x : nullptr;
  }
  if (is_neutral_arithmetic(node, kept)) return node.input(kept);
  return nullptr;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    Value* x = const_cast<Value*>(passed_through(*node));
    if (!x || x->dtype != node->output()->dtype) continue;
    const bool others_used = std::any_of(node->outputs().begin() + 1, node->outputs().end(),
                                         [](const Value* v) { return !v->uses().empty() || v->is_graph_output(); });
    if (others_used) continue;
    Value* out = node->output();
    if (x->shape != out->shape) {
      if (!node->op().starts_with("Reduce")) continue;
      FW_ASSIGN_OR_RETURN(Value * reshaped, add_reshape(graph, node, x, out->shape));
      FW_RETURN_IF_ERROR(replace_node(graph, node, reshaped));
      changed = true;
      continue;
    }
    // An output of the graph needs a place of its own: an Identity of an input, a constant or another output stays.
    const bool needs_place = out->is_graph_output() && (!x->producer() || x->is_graph_output());
    if (needs_place && node->op() == "Identity") continue;
    if (out->is_graph_output() && !needs_place) {
      const std::string name = out->name;
      FW_RETURN_IF_ERROR(bypass_node(graph, node, x));
      graph.rename(x, name);
    } else {
      FW_RETURN_IF_ERROR(bypass_node(graph, node, x));
    }
    changed = true;
  }
  return changed;
}

}  // namespace

const Pass kRemoveIdentity{"remove_identity", run, false};

}  // namespace flywheel::passes
