// SPDX-License-Identifier: Apache-2.0
// fuse_epilogue: bias, elementwise operators and residual additions that follow a convolution or matrix product become
// its `program`, run over the tile that was just computed. The group must have one result: the last value of it that
// anything else uses. Nodes are taken in order, so every operand from outside is computed before the new node's place,
// that of the last one.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes/fused_program.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

constexpr std::string_view kName = "fuse_epilogue";
constexpr size_t kMaxOperands = 8;  // of the epilogue
constexpr size_t kMaxNodes = 24;

bool takes_epilogue(const Node& node) {
  return node.op() == "Conv" || node.op() == "ConvTranspose" || node.op() == "Gemm" || node.op() == "MatMul";
}

// A matrix product over flattened rows sees an operand as [rows, columns] only if its leading dims are all there or
// all 1.
bool fits_rows(const Value& operand, const Value& out) {
  const size_t rank = operand.shape.size();
  if (rank <= 1) return true;
  const bool all_one =
      std::all_of(operand.shape.begin(), operand.shape.end() - 1, [](const DimExpr& dim) { return dim == DimExpr(1); });
  if (all_one) return true;
  return rank == out.shape.size() && std::equal(operand.shape.begin(), operand.shape.end() - 1, out.shape.begin());
}

struct Group {
  std::vector<Node*> nodes;
  FusedProgram fused;
};

// Why a node cannot join; empty when it can.
std::string objection(const Node& node, const Node& root, const std::vector<Node*>& members) {
  const Value* out = root.output();
  if (!is_elementwise(node)) return "it is not elementwise";
  if (node.output()->shape != out->shape) {
    return fmt::format("its shape {} differs from {}", sym_shape_to_string(node.output()->shape),
                       sym_shape_to_string(out->shape));
  }
  for (const Value* operand : node.inputs()) {
    if (!operand) return "an operand is absent";
    if (operand == out ||
        std::any_of(members.begin(), members.end(), [&](const Node* m) { return m->output() == operand; })) {
      continue;
    }
    if (operand->dtype != DType::kFloat32) {
      return fmt::format("operand %{} is {}, epilogues read f32", operand->name, dtype_name(operand->dtype));
    }
    if (root.op() == "Gemm" && !fits_rows(*operand, *out)) {
      return fmt::format("operand %{} of shape {} does not lie along rows or columns", operand->name,
                         sym_shape_to_string(operand->shape));
    }
  }
  return "";
}

// The values made by the root and the members that something outside uses.
std::vector<const Value*> visible(const Node& root, const std::vector<Node*>& members) {
  auto inside = [&](const Node* n) { return std::find(members.begin(), members.end(), n) != members.end(); };
  auto seen_outside = [&](const Value* value) {
    return value->is_graph_output() || std::any_of(value->uses().begin(), value->uses().end(),
                                                   [&](const Value::Use& use) { return !inside(use.node); });
  };
  std::vector<const Value*> result;
  if (seen_outside(root.output())) result.push_back(root.output());
  for (const Node* member : members) {
    if (seen_outside(member->output())) result.push_back(member->output());
  }
  return result;
}

// `position` orders nodes.
Node* next_user(const Node& root, const std::vector<Node*>& members, const std::map<const Node*, size_t>& position) {
  Node* best = nullptr;
  auto consider = [&](const Value* value) {
    for (const Value::Use& use : value->uses()) {
      auto at = position.find(use.node);
      if (at == position.end()) continue;  // a subgraph's
      if (std::find(members.begin(), members.end(), use.node) != members.end()) continue;
      if (!best || at->second < position.at(best)) best = use.node;
    }
  };
  consider(root.output());
  for (const Node* member : members) consider(member->output());
  return best;
}

std::string name_of(const Node& node) { return node.output() ? node.output()->name : node.op(); }

// Says why the elementwise users of the group's result stayed outside.
void remark_outside(const PassContext& context, const Node& root, const Value& result, const std::string& reason) {
  for (const Value::Use& use : result.uses()) {
    // A larger result is broadcast from this one: nobody expects it in here.
    if (!is_elementwise(*use.node) || use.node->output()->shape != result.shape) continue;
    std::string why = reason;
    if (result.is_graph_output()) {
      why = fmt::format("%{} is an output of the graph", result.name);
    } else if (result.uses().size() > 1) {
      auto other = std::find_if(result.uses().begin(), result.uses().end(),
                                [&](const Value::Use& u) { return u.node != use.node; });
      if (other != result.uses().end()) {
        why = fmt::format("%{} is also used by {} '{}'", result.name, other->node->op(), name_of(*other->node));
      }
    }
    if (why.empty()) continue;
    context.remark(kName, *use.node,
                   fmt::format("{} '{}' not fused into {} '{}': {}", use.node->op(), name_of(*use.node), root.op(),
                               name_of(root), why));
  }
}

Group grow(const Node& root, Value* bias, const std::map<const Node*, size_t>& position, std::string& reason) {
  Group best;
  std::vector<Value*> leading{root.output()};
  std::string why;
  if (bias) {
    std::optional<FusedProgram> alone = fuse_program({}, leading, bias, leading[0], DType::kFloat32, why);
    if (alone) best.fused = std::move(*alone);
  }
  std::vector<Node*> members;
  while (members.size() < kMaxNodes) {
    Node* next = next_user(root, members, position);
    if (!next) break;
    reason = objection(*next, root, members);
    if (!reason.empty()) {
      reason = fmt::format("{} '{}' cannot join: {}", next->op(), name_of(*next), reason);
      break;
    }
    members.push_back(next);
    if (visible(root, members) != std::vector<const Value*>{next->output()}) continue;
    std::optional<FusedProgram> fused = fuse_program(members, leading, bias, next->output(), DType::kFloat32, reason);
    if (!fused) break;
    if (fused->inputs.size() > kMaxOperands + 1) {
      reason = fmt::format("its {} operands are more than {}", fused->inputs.size() - 1, kMaxOperands);
      break;
    }
    if (next->output()->dtype != DType::kFloat32) continue;  // inside a group it may be, at its end not
    best = {members, std::move(*fused)};
  }
  return best;
}

// Keeps `position` right: the new node has that of the last one it replaces.
Result<bool> fuse_one(Graph& graph, Node* root, std::map<const Node*, size_t>& position, const PassContext& context) {
  if (root->attributes.contains("program") || root->output()->dtype != DType::kFloat32) return false;
  const bool is_conv = root->op() == "Conv" || root->op() == "ConvTranspose";
  if (is_conv && root->string_or("layout", "NCHW") != "NHWC") return false;  // a bias lies along the last dim
  if (root->op() == "MatMul" && (root->input(0)->rank() < 2 || root->input(1)->rank() < 2)) return false;
  const bool has_bias_operand = root->op() != "MatMul";
  Value* bias = has_bias_operand ? root->input(2) : nullptr;
  if (bias && bias->dtype != DType::kFloat32) return false;
  if (bias && root->op() == "Gemm" && !fits_rows(*bias, *root->output())) return false;
  std::string reason;
  Group group = grow(*root, bias, position, reason);
  const Value& end = group.nodes.empty() ? *root->output() : *group.nodes.back()->output();
  remark_outside(context, *root, end, reason);
  if (group.nodes.empty() && !bias) return false;

  std::vector<Value*> inputs{root->input(0), root->input(1)};
  inputs.insert(inputs.end(), group.fused.inputs.begin() + 1, group.fused.inputs.end());
  Attributes attributes = root->attributes;
  attributes["program"] = group.fused.program;
  std::vector<std::string> sources = root->sources;
  Node* last = group.nodes.empty() ? root : group.nodes.back();
  FW_ASSIGN_OR_RETURN(
      Node * fused, ops::add(graph, root->op(), std::move(inputs), std::move(attributes), last, 1, std::move(sources)));
  for (const Node* node : group.nodes) add_sources(*fused, node->sources);
  position[fused] = position.at(last);
  position.erase(root);
  for (const Node* node : group.nodes) position.erase(node);
  FW_RETURN_IF_ERROR(replace_node(graph, last, fused->output()));
  for (size_t i = group.nodes.size(); i-- > 0;) {
    if (group.nodes[i] != last) graph.erase(group.nodes[i]);
  }
  if (root != last) graph.erase(root);
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  bool changed = false;
  // From the last to the first: of two convolutions that are added, the later one takes the sum, for the other is then
  // computed.
  std::vector<Node*> nodes = node_list(graph);
  std::map<const Node*, size_t> position;
  for (size_t i = 0; i < nodes.size(); ++i) position[nodes[i]] = i;
  for (size_t i = nodes.size(); i-- > 0;) {
    Node* node = nodes[i];
    if (!position.contains(node) || !takes_epilogue(*node)) continue;
    FW_ASSIGN_OR_RETURN(bool fused, fuse_one(graph, node, position, context));
    changed |= fused;
  }
  return changed;
}

}  // namespace

const Pass kFuseEpilogue{"fuse_epilogue", run, false};

}  // namespace flywheel::passes
