// SPDX-License-Identifier: Apache-2.0
// decompose: operators that no kernel family computes become ones that do, each as its Op says. Squeeze, Unsqueeze and
// Flatten become Reshapes, and a Gather of constant neighbouring places a Slice: views, mostly.
#include <algorithm>

#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

Result<Value*> reshape(Graph& graph, Node* node) {
  return add_before(graph, node, "Reshape", {node->input(0)}, {{"shape", node->output()->shape}});
}

// The first of `indices` when they are that, the next, and so on, all inside an axis of fixed extent.
std::optional<int64_t> neighbours_from(const Node& gather) {
  const Value* indices = gather.input(1);
  const size_t axis = normalized_axis(gather.int_or("axis", 0), gather.input(0)->shape.size());
  std::optional<int64_t> extent = constant_dim(*gather.input(0), axis);
  if (!indices->is_constant() || !extent || indices->rank() > 1 || indices->constant->elements() < 1)
    return std::nullopt;
  int64_t first = 0;
  for (int64_t i = 0; i < indices->constant->elements(); ++i) {
    int64_t index = indices->constant->as_int(i);
    if (index < 0) index += *extent;
    if (i == 0) first = index;
    if (index < 0 || index >= *extent || index != first + i) return std::nullopt;
  }
  return first;
}

// Null: it stays.
Result<Value*> slice_for_gather(Graph& graph, Node* node) {
  std::optional<int64_t> first = neighbours_from(*node);
  if (!first) return nullptr;
  const auto axis = static_cast<int64_t>(normalized_axis(node->int_or("axis", 0), node->input(0)->shape.size()));
  const int64_t count = node->input(1)->constant->elements();
  FW_ASSIGN_OR_RETURN(Value * slice, add_before(graph, node, "Slice", {node->input(0)},
                                                {{"starts", SymShape{*first}},
                                                 {"ends", SymShape{*first + count}},
                                                 {"axes", std::vector<int64_t>{axis}},
                                                 {"steps", std::vector<int64_t>{1}}}));
  return add_reshape(graph, node, slice, node->output()->shape);
}

Result<Value*> replacement(Graph& graph, Node* node) {
  const std::string& op = node->op();
  if (op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") return reshape(graph, node);
  if (op == "Gather") return slice_for_gather(graph, node);
  return nullptr;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  bool changed = false;
  for (Node* node : node_list(graph)) {
    const ops::Op* op = ops::find_op(node->op());
    if (op && op->decompose) {
      const std::string described = node->describe();
      Status done = op->decompose(graph, node);
      if (done.is_ok()) {
        changed = true;
        continue;
      }
      if (done.code() != Code::kUnsupported) return done.with_context(described);
      context.remark("decompose", *node, done.message());  // lowering refuses it with all others
    }
    if (node->outputs().size() != 1) continue;
    FW_ASSIGN_OR_RETURN(Value * made, replacement(graph, node));
    if (!made) continue;
    FW_RETURN_IF_ERROR(replace_node(graph, node, made));
    changed = true;
  }
  graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kDecompose{"decompose", run, true};

}  // namespace flywheel::passes
