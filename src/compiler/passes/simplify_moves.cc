// SPDX-License-Identifier: Apache-2.0
// simplify_moves: chains of Reshape and Transpose become the shortest chain that does the same: pairs cancel, a
// Transpose that only moves dims of 1 becomes a Reshape, Reshape-Transpose-Reshape one Transpose where it is one.
#include <algorithm>

#include "compiler/passes/move_chain.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

constexpr size_t kLongest = 12;       // part of a chain that is looked at; what it becomes is looked at again
constexpr int kTransposeWeight = 16;  // a Reshape is mostly a view

bool is_move(const Node* node) { return node && (node->op() == "Reshape" || node->op() == "Transpose"); }
int weight(const Node& node) { return node.op() == "Transpose" ? kTransposeWeight : 1; }

Result<bool> shorten(Graph& graph, Node* end) {
  // path: from the end back to the base. What only this chain uses goes away with it.
  std::vector<Node*> path;
  for (Node* node = end; is_move(node) && path.size() < kLongest; node = node->input(0)->producer()) {
    path.push_back(node);
  }
  const SymShape final = end->output()->shape;
  int best_gain = 0;
  Value* best_base = nullptr;
  std::vector<MoveChain::Step> best_steps;
  int saved = 0;
  bool dies = true;
  for (size_t length = 1; length <= path.size(); ++length) {
    const Node* first = path[length - 1];
    if (length > 1 && !first->output()->single_user()) dies = false;
    if (dies) saved += weight(*first);
    Value* base = first->input(0);
    MoveChain chain(base->shape);
    bool fits = true;
    for (size_t i = length; i-- > 0 && fits;) {
      if (path[i]->op() == "Transpose") {
        chain.transpose(path[i]->ints_or("perm", {}));
      } else {
        fits = chain.reshape(path[i]->output()->shape);
      }
    }
    if (!fits) break;
    std::vector<MoveChain::Step> steps = chain.shortest();
    int cost = 0;
    for (const MoveChain::Step& step : steps) cost += step.is_transpose ? kTransposeWeight : 1;
    if (saved - cost <= best_gain) continue;
    best_gain = saved - cost;
    best_base = base;
    best_steps = std::move(steps);
  }
  if (!best_base) return false;
  Value* value = best_base;
  for (const MoveChain::Step& step : best_steps) {
    if (step.is_transpose) {
      FW_ASSIGN_OR_RETURN(value, add_before(graph, end, "Transpose", {value}, {{"perm", step.perm}}));
    } else {
      FW_ASSIGN_OR_RETURN(value, add_reshape(graph, end, value, step.shape));
    }
  }
  if (value == best_base) {
    FW_RETURN_IF_ERROR(bypass_node(graph, end, value));
  } else {
    FW_RETURN_IF_ERROR(replace_node(graph, end, value));
  }
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false, again = true;
  while (again) {
    again = false;
    for (Node* node : node_list(graph)) {
      if (!is_move(node)) continue;
      FW_ASSIGN_OR_RETURN(bool shorter, shorten(graph, node));
      again |= shorter;
    }
    changed |= again;
    graph.erase_dead();
  }
  return changed;
}

}  // namespace

const Pass kSimplifyMoves{"simplify_moves", run, false};

}  // namespace flywheel::passes
