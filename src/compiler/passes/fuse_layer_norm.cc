// SPDX-License-Identifier: Apache-2.0
// fuse_layer_norm: LayerNormalization and RMSNormalization from the arithmetic that exporters write them as:
//   d = x - mean(x);  d / sqrt(mean(d * d) + epsilon) [* scale] [+ bias]
//   x / sqrt(mean(x * x) + epsilon) [* scale]
// where the quotient may be a product with a reciprocal. Runs after canonicalize, which knows the spellings of squares
// and roots.
#include <algorithm>
#include <cmath>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/layout_plan.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

struct Norm {
  Value* x = nullptr;
  bool rms = false;
  int64_t axis = 0;
  double epsilon = 0;
  Node* end = nullptr;     // makes the result
  Value* scale = nullptr;  // constants of the normalized extent; null when absent
  Value* bias = nullptr;
  std::vector<const Node*> nodes;  // all that the result stands for, in order
};

// The mean of `x` over trailing dims, kept as 1; the first of them.
std::optional<int64_t> trailing_mean(const Node* mean, const Value* x) {
  if (!mean || mean->op() != "ReduceMean" || mean->input(0) != x || !keeps_dims(*mean)) return std::nullopt;
  const std::vector<size_t> axes = reduced_axes(*mean);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != x->shape.size() - axes.size() + i) return std::nullopt;
  }
  return static_cast<int64_t>(axes.front());
}

// sqrt(mean(d * d) + epsilon).
bool match_deviation(const Value* value, const Value* d, Norm& norm) {
  const Node* root = made_by(value, "Sqrt");
  if (!root) return false;
  std::optional<WithScalar> raised = match_scalar(root->input(0), "Add");
  const Node* mean = raised ? made_by(raised->x, "ReduceMean") : nullptr;
  const Node* square = mean ? made_by(mean->input(0), "Mul") : nullptr;
  if (!square || square->input(0) != d || square->input(1) != d) return false;
  std::optional<int64_t> axis = trailing_mean(mean, square->output());
  if (!axis) return false;
  norm.axis = *axis;
  norm.epsilon = raised->c;
  norm.nodes.insert(norm.nodes.end(), {square, mean, root->input(0)->producer(), root});
  return true;
}

// d / deviation, or d * reciprocal(deviation).
bool match_quotient(Node* node, Norm& norm, Value*& d) {
  if (node->op() == "Div") {
    d = node->input(0);
    return match_deviation(node->input(1), d, norm);
  }
  for (size_t i : {size_t{1}, size_t{0}}) {
    const Node* reciprocal = made_by(node->input(i), "Reciprocal");
    if (!reciprocal) continue;
    d = node->input(1 - i);
    if (match_deviation(reciprocal->input(0), d, norm)) {
      norm.nodes.push_back(reciprocal);
      return true;
    }
  }
  return false;
}

std::optional<Norm> match(Node* node) {
  if (node->op() != "Div" && node->op() != "Mul") return std::nullopt;
  Norm norm;
  Value* d = nullptr;
  if (!match_quotient(node, norm, d) || d->dtype != DType::kFloat32 || node->output()->shape != d->shape)
    return std::nullopt;
  norm.end = node;
  norm.x = d;
  norm.rms = true;
  if (Node* difference = made_by(d, "Sub")) {
    const Node* mean = difference->input(1)->producer();
    std::optional<int64_t> axis = trailing_mean(mean, difference->input(0));
    if (axis && *axis == norm.axis) {
      norm.x = difference->input(0);
      norm.rms = false;
      norm.nodes.insert(norm.nodes.begin(), {mean, difference});
    }
  }
  norm.nodes.push_back(node);
  return norm;
}

// A constant that covers the normalized extent exactly, in its dims.
Value* as_parameter(Graph& graph, Value* constant, const Norm& norm) {
  if (!constant || !constant->is_constant() || constant->dtype != DType::kFloat32) return nullptr;
  const SymShape extent(norm.x->shape.begin() + norm.axis, norm.x->shape.end());
  std::optional<Dims> dims = constant_dims(extent);
  if (!dims || constant->rank() > norm.x->rank()) return nullptr;
  Dims padded = constant->constant->dims;
  while (padded.size() > dims->size() && padded.front() == 1) padded.erase(padded.begin());
  if (padded != *dims) return nullptr;
  return constant->constant->dims == *dims ? constant
                                           : graph.add_constant(constant->name, reshaped(*constant->constant, *dims));
}

// A Mul by the scale and an Add of the bias that follow, each the only user.
void take_parameters(Graph& graph, Norm& norm) {
  for (std::string_view op : {"Mul", "Add"}) {
    if (op == "Add" && (norm.rms || !norm.scale))
      return;  // RMSNormalization has no bias, and a bias without scale is rare
    Node* user = norm.end->output()->single_user();
    if (!user || user->op() != op || user->output()->shape != norm.end->output()->shape) return;
    Value* other = user->input(user->input(0) == norm.end->output() ? 1 : 0);
    Value* parameter = as_parameter(graph, other, norm);
    if (!parameter) return;
    (op == "Mul" ? norm.scale : norm.bias) = parameter;
    norm.nodes.push_back(user);
    norm.end = user;
  }
}

Result<bool> fuse(Graph& graph, Norm norm, std::set<const Node*>& erased) {
  take_parameters(graph, norm);
  if (!norm.scale) {
    std::optional<Dims> dims = constant_dims(SymShape(norm.x->shape.begin() + norm.axis, norm.x->shape.end()));
    if (!dims) return false;
    norm.scale = graph.add_constant("ones", filled(DType::kFloat32, *dims, 1));
  }
  std::vector<Value*> inputs{norm.x, norm.scale};
  if (norm.bias) inputs.push_back(norm.bias);
  FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, norm.end, norm.rms ? "RMSNormalization" : "LayerNormalization",
                                               std::move(inputs), {{"axis", norm.axis}, {"epsilon", norm.epsilon}}));
  made->producer()->sources.clear();
  for (const Node* node : norm.nodes) add_sources(*made->producer(), node->sources);
  Node* end = norm.end;
  FW_RETURN_IF_ERROR(replace_node(graph, end, made));
  erased.insert(end);
  // From the last to the first: each is unused once its users are gone.
  std::reverse(norm.nodes.begin(), norm.nodes.end());
  for (const Node* node : norm.nodes) erase_unused(graph, const_cast<Node*>(node), erased);
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  std::set<const Node*> erased;
  for (Node* node : node_list(graph)) {
    if (erased.contains(node)) continue;
    std::optional<Norm> norm = match(node);
    if (!norm) continue;
    FW_ASSIGN_OR_RETURN(bool fused, fuse(graph, std::move(*norm), erased));
    changed |= fused;
  }
  return changed;
}

}  // namespace

const Pass kFuseLayerNorm{"fuse_layer_norm", run, false};

}  // namespace flywheel::passes
