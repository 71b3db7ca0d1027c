// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/layout_plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/passes/min_cut.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool is_any_of(const Node& node, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), node.op()) != ops.end();
}

int64_t bytes_of(const Value& value) {
  const double bytes = estimated_elements(value.shape) * static_cast<double>(dtype_size(value.dtype));
  return static_cast<int64_t>(std::clamp(bytes, 2.0, 0x1p40));
}

// What a change of storage order to `perm` moves. A mere Reshape is not quite free: it must not appear without need.
int64_t move_cost(const Value& value, const SymShape& shape, const Perm& perm) {
  if (value.is_constant()) return 0;
  return is_trivial(shape, perm) ? 1 : bytes_of(value);
}

// What may be said of a node before the cut decides.
struct Choice {
  enum Kind { kStays, kMoves, kEither, kEntersMoved, kLeavesMoved, kFreeIn } kind = kStays;
  Perm perm_in;
  int64_t cost_stays = 0, cost_moved = 0;  // kEither: of the node itself
};

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {}

  LayoutPlan run() {
    for (const Value* value : graph_.inputs()) set_default(value);
    for (const auto& node : graph_.nodes()) choices_[node.get()] = choose(*node);
    for (const auto& node : graph_.nodes()) add_node(*node);
    for (const auto& node : graph_.nodes()) add_operands(*node);
    for (const Value* value : graph_.values()) add_value(value);
    const std::vector<bool> stays = cut_.solve();
    for (const auto& node : graph_.nodes()) {
      const Ends ends = ends_.at(node.get());
      NodeLayout layout{!stays[static_cast<size_t>(ends.in)], !stays[static_cast<size_t>(ends.out)]};
      if (!layout.moved_in && !layout.moved_out) continue;
      plan_.nodes[node.get()] = layout;
      plan_.perm_in[node.get()] = choices_.at(node.get()).perm_in;
    }
    return std::move(plan_);
  }

 private:
  struct Ends {
    int in, out;  // vertices of the cut
  };

  void set_default(const Value* value) {
    if (value->rank() >= 3) plan_.perm[value] = channels_last(value->shape.size());
  }

  const Perm* perm_of(const Value* value) const {
    auto it = plan_.perm.find(value);
    return it == plan_.perm.end() ? nullptr : &it->second;
  }

  // Also sets the outputs' perms.
  Choice choose(const Node& node) {
    Choice choice;
    for (const Value* output : node.outputs()) set_default(output);
    const Value* x = node.input(0);
    if (!x || node.outputs().empty()) return choice;
    if (is_spatial(node)) {
      choice.kind = Choice::kMoves;
      choice.perm_in = channels_last(x->shape.size());
      return choice;
    }
    if (is_elementwise(node)) return choose_elementwise(node);
    if (node.op() == "Concat") return choose_elementwise(node);
    const Perm* perm = perm_of(x);
    if (!perm) return choice;
    choice.perm_in = *perm;
    if (node.op() == "Transpose") return choose_transpose(node, choice);
    if (node.op() == "Reshape") return choose_reshape(node, choice);
    if (is_reduction(node)) return choose_reduction(node, choice);
    if (keeps_rank(node)) {
      choice.kind = Choice::kEither;
      for (const Value* output : node.outputs()) plan_.perm[output] = *perm;
    }
    return choice;
  }

  static bool keeps_rank(const Node& node) {
    const Value* x = node.input(0);
    for (const Value* output : node.outputs()) {
      if (output->rank() != x->rank()) return false;
    }
    if (node.op() == "Gather") return node.input(1) && node.input(1)->rank() == 1;
    return is_any_of(node, {"Identity", "Softmax", "LogSoftmax", "Slice", "Split", "Pad", "Expand", "CumSum"});
  }

  Choice choose_elementwise(const Node& node) {
    Choice choice;
    const Value* out = node.output();
    if (out->rank() < 3) return choice;
    // The order that the first operand with something to move has; the others follow, at a price if theirs differs.
    for (bool may_be_trivial : {false, true}) {
      for (const Value* operand : node.inputs()) {
        const Perm* perm =
            operand && !operand->is_constant() && operand->rank() == out->rank() ? perm_of(operand) : nullptr;
        if (!perm || (!may_be_trivial && is_trivial(operand->shape, *perm))) continue;
        choice.kind = Choice::kEither;
        choice.perm_in = *perm;
        plan_.perm[out] = *perm;
        return choice;
      }
    }
    return choice;
  }

  // Channels-last, unless what reads the value is a Reshape that only `other` fits: channels that were split, swapped,
  // merged again.
  static Perm order_wanted(const Value& value, const Perm& other) {
    const Value* at = &value;
    for (int depth = 0; depth < 4 && at->uses().size() == 1; ++depth) {
      const Node& user = *at->uses()[0].node;
      if (user.op() == "Reshape") {
        const SymShape& shape = user.output()->shape;
        const bool fits_usual = perm_through_reshape(value.shape, channels_last(other.size()), shape).has_value();
        if (!fits_usual && perm_through_reshape(value.shape, other, shape)) return other;
        break;
      }
      if (!is_elementwise(user) || user.output()->shape != value.shape) break;
      at = user.output();
    }
    return channels_last(other.size());
  }

  Choice choose_transpose(const Node& node, Choice choice) {
    const Value* x = node.input(0);
    const Value* out = node.output();
    const Perm q = node.ints_or("perm", {});
    if (q.size() != x->shape.size()) return choice;
    if (q == choice.perm_in) {
      choice.kind = Choice::kEntersMoved;
      return choice;
    }
    const Perm out_perm = order_wanted(*out, choice.perm_in);
    Perm back, across;
    const Perm inverse_in = inverse(choice.perm_in);
    for (int64_t dim : out_perm) {
      back.push_back(q[static_cast<size_t>(dim)]);
      across.push_back(inverse_in[static_cast<size_t>(back.back())]);
    }
    plan_.perm[out] = out_perm;
    if (back == identity_perm(q.size())) {
      choice.kind = Choice::kLeavesMoved;
      return choice;
    }
    choice.kind = Choice::kEither;
    choice.cost_stays = move_cost(*x, x->shape, q);
    choice.cost_moved = move_cost(*x, permuted_shape(x->shape, choice.perm_in), across);
    return choice;
  }

  Choice choose_reshape(const Node& node, Choice choice) {
    const Value* out = node.output();
    std::optional<Perm> through = perm_through_reshape(node.input(0)->shape, choice.perm_in, out->shape);
    if (!through) return choice;
    if (is_trivial(out->shape, *through)) {
      choice.kind = Choice::kFreeIn;  // the same elements in the same order either way
      return choice;
    }
    choice.kind = Choice::kEither;
    plan_.perm[out] = *through;
    return choice;
  }

  Choice choose_reduction(const Node& node, Choice choice) {
    const Value* out = node.output();
    if (keeps_dims(node)) {
      choice.kind = Choice::kEither;
      plan_.perm[out] = choice.perm_in;
      return choice;
    }
    const Perm rest = perm_without(choice.perm_in, reduced_axes(node));
    if (is_trivial(out->shape, rest)) {
      choice.kind = Choice::kFreeIn;
    } else if (out->rank() >= 3) {
      choice.kind = Choice::kEither;
      plan_.perm[out] = rest;
    }
    return choice;
  }

  // The source's side stays as it is.
  void add_node(const Node& node) {
    const int stays = cut_.source(), moves = cut_.sink();
    switch (const Choice& choice = choices_.at(&node); choice.kind) {
      case Choice::kStays: ends_[&node] = {stays, stays}; break;
      case Choice::kMoves: ends_[&node] = {moves, moves}; break;
      case Choice::kEntersMoved: ends_[&node] = {moves, stays}; break;
      case Choice::kLeavesMoved: ends_[&node] = {stays, moves}; break;
      case Choice::kFreeIn: ends_[&node] = {cut_.add_vertex(), stays}; break;
      case Choice::kEither: {
        const int vertex = cut_.add_vertex();
        ends_[&node] = {vertex, vertex};
        cut_.add_edge(vertex, moves, choice.cost_stays);
        cut_.add_edge(stays, vertex, choice.cost_moved);
        break;
      }
    }
  }

  // Operands that have to be brought into the node's order from their own when it moves.
  void add_operands(const Node& node) {
    const Choice& choice = choices_.at(&node);
    for (size_t i : layout_operands(node)) {
      const Value* operand = node.input(i);
      if (!operand || operand->is_constant()) continue;
      const Perm* perm = perm_of(operand);
      if (perm && (choice.kind == Choice::kStays || *perm == choice.perm_in)) {
        readers_[operand].push_back(ends_.at(&node).in);
        continue;
      }
      readers_[operand].push_back(cut_.source());
      if (choice.perm_in.size() < operand->shape.size()) continue;
      SymShape padded(choice.perm_in.size() - operand->shape.size(), DimExpr(1));
      padded.insert(padded.end(), operand->shape.begin(), operand->shape.end());
      cut_.add_edge(cut_.source(), ends_.at(&node).in, move_cost(*operand, padded, choice.perm_in));
    }
    const std::vector<size_t> about = layout_operands(node);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (node.input(i) && std::find(about.begin(), about.end(), i) == about.end()) {
        readers_[node.input(i)].push_back(cut_.source());
      }
    }
  }

  // Both directions are paid once a value, however many read it: one vertex more for each direction.
  void add_value(const Value* value) {
    const Perm* perm = perm_of(value);
    auto readers = readers_.find(value);
    std::vector<int> ends = readers == readers_.end() ? std::vector<int>() : readers->second;
    if (value->is_graph_output()) ends.push_back(cut_.source());
    const int64_t cost = perm ? move_cost(*value, value->shape, *perm) : 0;
    if (cost == 0 || ends.empty()) return;
    const int made = value->producer() ? ends_.at(value->producer()).out : cut_.source();
    const int any_moved = cut_.add_vertex(), any_stays = cut_.add_vertex();
    cut_.add_edge(made, any_moved, cost);
    cut_.add_edge(any_stays, made, cost);
    for (int end : ends) {
      cut_.add_edge(any_moved, end, MinCut::kInfinite);
      cut_.add_edge(end, any_stays, MinCut::kInfinite);
    }
  }

  const Graph& graph_;
  LayoutPlan plan_;
  MinCut cut_;
  std::map<const Node*, Choice> choices_;
  std::map<const Node*, Ends> ends_;
  std::map<const Value*, std::vector<int>> readers_;
};

}  // namespace

bool is_spatial(const Node& node) {
  if (!is_any_of(node, {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize"})) return false;
  if (node.string_or("layout", "NCHW") != "NCHW" || !node.input(0) || node.input(0)->rank() < 3) return false;
  if (node.outputs().size() != 1) return false;
  if (node.op() != "Resize") return true;
  // A Resize of batch or channels is none of the kernels'.
  const Value& x = *node.input(0);
  const Value& y = *node.output();
  return x.rank() == 4 && x.shape[0] == y.shape[0] && x.shape[1] == y.shape[1];
}

std::vector<size_t> layout_operands(const Node& node) {
  std::vector<size_t> operands{0};
  if (is_elementwise(node) || node.op() == "Concat") {
    for (size_t i = 1; i < node.inputs().size(); ++i) operands.push_back(i);
  }
  return operands;
}

Perm perm_without(const Perm& perm, const std::vector<size_t>& dropped) {
  Perm rest;
  for (int64_t dim : perm) {
    if (std::find(dropped.begin(), dropped.end(), static_cast<size_t>(dim)) != dropped.end()) continue;
    int64_t before =
        std::count_if(dropped.begin(), dropped.end(), [&](size_t d) { return static_cast<int64_t>(d) < dim; });
    rest.push_back(dim - before);
  }
  return rest;
}

bool is_reduction(const Node& node) { return node.op().starts_with("Reduce") || is_any_of(node, {"ArgMax", "ArgMin"}); }

bool keeps_dims(const Node& node) { return node.int_or("keepdims", 1) != 0; }

std::vector<size_t> reduced_axes(const Node& node) {
  const size_t rank = node.input(0)->shape.size();
  std::vector<size_t> axes;
  if (node.op().starts_with("Arg")) {
    axes.push_back(normalized_axis(node.int_or("axis", 0), rank));
  } else {
    for (int64_t axis : node.ints_or("axes", {})) axes.push_back(normalized_axis(axis, rank));
  }
  if (axes.empty()) {
    for (size_t i = 0; i < rank; ++i) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

LayoutPlan plan_layout(const Graph& graph) { return Planner(graph).run(); }

}  // namespace flywheel::passes
