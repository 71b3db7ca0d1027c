// SPDX-License-Identifier: Apache-2.0
// fuse_pointwise: trees of elementwise operators of one shape become one Pointwise node, so that intermediates stay in
// registers. An operator joins its user's group when nothing outside the group needs its result. A group computes in
// one type; conversions happen where it loads and stores.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/passes/fused_program.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxNodes = 48;

struct Group {
  std::vector<Node*> nodes;  // topological order, the root last
  FusedProgram fused;
};

bool in(const std::vector<Node*>& nodes, const Node* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// The producer among the group's operands that comes last and has no user elsewhere; null when there is none.
Node* next_producer(const std::vector<Node*>& members, const std::set<const Node*>& refused,
                    const std::map<const Node*, size_t>& position) {
  Node* best = nullptr;
  for (const Node* member : members) {
    for (const Value* operand : member->inputs()) {
      Node* producer = operand ? operand->producer() : nullptr;
      if (!producer || in(members, producer) || refused.contains(producer) || !is_elementwise(*producer)) continue;
      if (operand->shape != members.back()->output()->shape || operand->is_graph_output()) continue;
      const bool inner = std::all_of(operand->uses().begin(), operand->uses().end(),
                                     [&](const Value::Use& use) { return in(members, use.node); });
      if (inner && (!best || position.at(producer) > position.at(best))) best = producer;
    }
  }
  return best;
}

Group grow(Node* root, DType compute, const std::map<const Node*, size_t>& position) {
  Group group;
  std::string why;
  std::vector<Node*> members{root};
  std::optional<FusedProgram> fused = fuse_program(members, {}, nullptr, root->output(), compute, why);
  if (!fused) return group;
  group = {members, std::move(*fused)};
  std::set<const Node*> refused;
  while (group.nodes.size() < kMaxNodes) {
    Node* producer = next_producer(group.nodes, refused, position);
    if (!producer) break;
    members = group.nodes;
    members.insert(std::find_if(members.begin(), members.end(),
                                [&](const Node* m) { return position.at(m) > position.at(producer); }),
                   producer);
    fused = fuse_program(members, {}, nullptr, root->output(), compute, why);
    if (!fused || fused->inputs.size() > kMaxInputs) {
      refused.insert(producer);
    } else {
      group = {members, std::move(*fused)};
    }
  }
  return group;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  std::vector<Node*> nodes = node_list(graph);
  std::map<const Node*, size_t> position;
  for (size_t i = 0; i < nodes.size(); ++i) position[nodes[i]] = i;
  std::set<const Node*> erased;
  for (size_t i = nodes.size(); i-- > 0;) {
    Node* root = nodes[i];
    if (erased.contains(root) || !is_elementwise(*root)) continue;
    Group best;
    for (DType compute : {DType::kFloat32, DType::kInt64, DType::kFloat64}) {
      Group group = grow(root, compute, position);
      if (group.nodes.size() > best.nodes.size()) best = std::move(group);
    }
    if (best.nodes.size() < 2) continue;
    std::vector<std::string> sources;
    FW_ASSIGN_OR_RETURN(Node * fused, ops::add(graph, "Pointwise", best.fused.inputs,
                                               {{"program", best.fused.program},
                                                {"dtype", static_cast<int64_t>(root->output()->dtype)}},
                                               root, 1, {}));
    for (const Node* node : best.nodes) add_sources(*fused, node->sources);
    position[fused] = position.at(root);
    for (const Node* node : best.nodes) erased.insert(node);
    FW_RETURN_IF_ERROR(replace_node(graph, root, fused->output()));
    for (size_t k = best.nodes.size() - 1; k-- > 0;) graph.erase(best.nodes[k]);
    changed = true;
  }
  return changed;
}

}  // namespace

const Pass kFusePointwise{"fuse_pointwise", run, false};

}  // namespace flywheel::passes
