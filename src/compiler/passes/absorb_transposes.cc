// SPDX-License-Identifier: Apache-2.0
// absorb_transposes: transposes that the neighbour can do without.
//   Gemm over flattened rows of a transposed tensor: the weights' rows are reordered instead (an image flattened for a
//   classifier). Gather of a transposed tensor: places are taken from the tensor as it lies, and what was taken is
//   transposed, if it is less.
#include <algorithm>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/move_chain.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// Gemm(Reshape(Transpose(x)), w), where leading dims stay and the others, whatever their order, become the row.
Result<bool> into_weights(Graph& graph, Node* gemm) {
  Node* flatten = made_by(gemm->input(0), "Reshape");
  Node* transpose = flatten ? made_by(flatten->input(0), "Transpose") : nullptr;
  if (!transpose || !gemm->input(1)->is_constant() || !gemm->input(1)->single_user()) return false;
  if (gemm->int_or("transA", 0) != 0 || flatten->output()->rank() < 2) return false;
  const Value& moved = *flatten->input(0);
  const Perm perm = transpose->ints_or("perm", {});
  const std::vector<DimGroup> groups = reshape_groups(moved.shape, flatten->output()->shape);
  if (groups.empty() || groups.back().y_last - groups.back().y_first != 1) return false;
  const size_t first = groups.back().x_first;
  std::optional<Dims> row =
      constant_dims(SymShape(moved.shape.begin() + static_cast<ptrdiff_t>(first), moved.shape.end()));
  for (size_t i = 0; i < first; ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  if (!row || moved.shape.size() - first < 2) return false;

  const ir::ConstTensor& weights = *gemm->input(1)->constant;
  const bool trans_b = gemm->int_or("transB", 0) != 0;
  const int64_t columns = weights.dims[trans_b ? 0 : 1];
  // The weights' rows as a tensor of the transposed order, put back into x's.
  const size_t shift = trans_b ? 1 : 0;
  Dims apart = *row;
  Perm order(row->size());
  for (size_t i = 0; i < row->size(); ++i) {
    order[static_cast<size_t>(perm[first + i]) - first] = static_cast<int64_t>(i + shift);
  }
  apart.insert(trans_b ? apart.begin() : apart.end(), columns);
  order.insert(trans_b ? order.begin() : order.end(), trans_b ? 0 : static_cast<int64_t>(row->size()));
  Value* reordered =
      graph.add_constant(gemm->input(1)->name, reshaped(permuted(reshaped(weights, apart), order), weights.dims));
  FW_ASSIGN_OR_RETURN(Value * rows, add_before(graph, flatten, "Reshape", {transpose->input(0)},
                                               {{"shape", flatten->output()->shape}}));
  graph.set_input(gemm, 0, rows);
  graph.set_input(gemm, 1, reordered);
  return true;
}

// Gather along `axis` of a chain of moves that ends in a Transpose.
Result<bool> behind_gather(Graph& graph, Node* gather) {
  if (gather->input(1)->rank() != 1) return false;
  Value* data = gather->input(0);
  std::vector<Node*> path;
  for (Node* node = data->producer(); node && (node->op() == "Reshape" || node->op() == "Transpose");
       node = node->input(0)->producer()) {
    if (!node->output()->single_user() || path.size() == 8) break;
    path.push_back(node);
  }
  const bool moves = std::any_of(path.begin(), path.end(), [](const Node* node) { return node->op() == "Transpose"; });
  if (!moves || estimated_elements(gather->output()->shape) > estimated_elements(data->shape)) return false;
  Value* base = path.back()->input(0);
  MoveChain chain(base->shape);
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i]->op() == "Transpose") {
      chain.transpose(path[i]->ints_or("perm", {}));
    } else if (!chain.reshape(path[i]->output()->shape)) {
      return false;
    }
  }
  std::optional<std::vector<MoveChain::Step>> steps = chain.transposed_last();
  if (!steps || steps->empty() || !steps->back().is_transpose) return false;
  const Perm perm = steps->back().perm;
  if (is_trivial(permuted_shape(data->shape, inverse(perm)), perm)) return false;
  Value* lying = base;
  if (steps->size() == 2) {
    FW_ASSIGN_OR_RETURN(lying, add_reshape(graph, gather, base, steps->front().shape));
  }
  const size_t axis = normalized_axis(gather->int_or("axis", 0), data->shape.size());
  FW_ASSIGN_OR_RETURN(Value * taken,
                      add_before(graph, gather, "Gather", {lying, gather->input(1)}, {{"axis", perm[axis]}}));
  FW_ASSIGN_OR_RETURN(Value * made, add_transpose(graph, gather, taken, perm));
  made->producer()->sources.clear();
  FW_RETURN_IF_ERROR(replace_node(graph, gather, made));
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    bool absorbed = false;
    if (node->op() == "Gemm") {
      FW_ASSIGN_OR_RETURN(absorbed, into_weights(graph, node));
    } else if (node->op() == "Gather") {
      FW_ASSIGN_OR_RETURN(absorbed, behind_gather(graph, node));
    }
    changed |= absorbed;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kAbsorbTransposes{"absorb_transposes", run, false};

}  // namespace flywheel::passes
