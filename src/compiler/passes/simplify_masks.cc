// SPDX-License-Identifier: Apache-2.0
// simplify_masks: what models do to prepare masks, on fewer elements. Expand moves behind the elementwise operators
// that broadcast anyway, and comparisons that can only be true (position >= 0) are.
#include <algorithm>

#include "compiler/ops/infer.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// NumPy broadcasting where it can be decided.
std::optional<SymShape> broadcast_shape(const std::vector<Value*>& operands) {
  SymShape result;
  for (const Value* operand : operands) {
    while (result.size() < operand->shape.size()) result.insert(result.begin(), DimExpr(1));
    const size_t shift = result.size() - operand->shape.size();
    for (size_t i = 0; i < operand->shape.size(); ++i) {
      DimExpr& dim = result[shift + i];
      if (dim == DimExpr(1)) {
        dim = operand->shape[i];
      } else if (dim != operand->shape[i] && operand->shape[i] != DimExpr(1)) {
        return std::nullopt;
      }
    }
  }
  return result;
}

// Integers that cannot be negative: a Range that starts at 0 or above and ascends, however it was reshaped.
bool is_nonnegative(const Value* value) {
  if (is_float(value->dtype)) return false;
  constexpr std::string_view kMoves[] = {"Reshape", "Unsqueeze", "Squeeze", "Expand", "Transpose", "Identity"};
  const Node* node = value->producer();
  while (node && std::find(std::begin(kMoves), std::end(kMoves), node->op()) != std::end(kMoves)) {
    node = node->input(0)->producer();
  }
  if (!node || node->op() != "Range") return false;
  auto not_negative = [&](std::string_view name, int64_t fallback) {
    std::optional<SymShape> dims = ops::dims_attribute(*node, name);
    if (!dims) return node->int_or(name, fallback) >= 0;
    return dims->size() == 1 && (*dims)[0].constant() && *(*dims)[0].constant() >= 0;
  };
  return not_negative("start", 0) && not_negative("step", 1);
}

bool is_always_true(const Node& node) {
  if (node.op() != "GreaterOrEqual" && node.op() != "Greater") return false;
  std::optional<double> bound = splat_constant(node.input(1));
  if (!bound || !node.input(0) || !is_nonnegative(node.input(0))) return false;
  return node.op() == "Greater" ? *bound < 0 : *bound <= 0;
}

// Expand operands of an elementwise node give way to what they expand; what is lost in extent is expanded after it.
Result<bool> sink_expands(Graph& graph, Node* node) {
  std::vector<Value*> operands = node->inputs();
  bool any = false;
  for (Value*& operand : operands) {
    if (!operand) return false;
    if (Node* expand = made_by(operand, "Expand")) {
      operand = expand->input(0);
      any = true;
    }
  }
  if (!any) return false;
  std::optional<SymShape> shape = broadcast_shape(operands);
  if (!shape) return false;
  const SymShape wanted = node->output()->shape;
  if (*shape != wanted && estimated_elements(*shape) >= estimated_elements(wanted) && shape->size() == wanted.size()) {
    return false;
  }
  FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, node, node->op(), std::move(operands), node->attributes));
  if (made->shape != wanted) {
    FW_ASSIGN_OR_RETURN(made, add_before(graph, node, "Expand", {made}, {{"shape", wanted}}));
  }
  FW_RETURN_IF_ERROR(replace_node(graph, node, made));
  return true;
}

Result<bool> rewrite(Graph& graph, Node* node) {
  if (is_always_true(*node)) {
    FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, node, "Expand", {add_scalar(graph, DType::kBool, 1, "true")},
                                                 {{"shape", node->output()->shape}}));
    FW_RETURN_IF_ERROR(replace_node(graph, node, made));
    return true;
  }
  if (is_elementwise(*node)) return sink_expands(graph, node);
  if (node->op() == "Expand") {
    if (Node* inner = made_by(node->input(0), "Expand")) {
      graph.set_input(node, 0, inner->input(0));
      return true;
    }
  }
  if (node->op() == "Attention" && node->input(3)) {
    if (Node* expand = made_by(node->input(3), "Expand")) {
      graph.set_input(node, 3, expand->input(0));
      return true;
    }
  }
  return false;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    FW_ASSIGN_OR_RETURN(bool rewritten, rewrite(graph, node));
    changed |= rewritten;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kSimplifyMasks{"simplify_masks", run, false};

}  // namespace flywheel::passes
