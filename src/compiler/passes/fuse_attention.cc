// SPDX-License-Identifier: Apache-2.0
// fuse_attention: softmax(scale * Q K^T + mask) V becomes one Attention node. The scale may be a Mul or Div of the
// scores, of Q or of K (or of both, by its root), before or after the heads are split; masks are added or selected, any
// number of them; rows that are masked as a whole may be zeroed (Where of IsNaN). Splitting and merging heads stay
// Reshapes and Transposes: views.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/passes/moves.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"
#include "kernels/attention/attention.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// Adding this to a score gives this: selecting it and adding it are then the same.
constexpr double kDrowns = -1e30;

struct Mask {
  enum Kind { kAdd, kKeep, kDrop } kind;  // added; true stays; true goes
  Value* value;
};

struct Match {
  Value *q = nullptr, *k_transposed = nullptr, *v = nullptr;
  double scale = 1;
  std::vector<Mask> masks;
  std::vector<std::pair<Value*, double>> drowned;  // a condition under which scores become that number; true goes
  bool masked_rows_to_zero = false;
  std::vector<const Node*> nodes;  // from the end on
  std::vector<Node*> scalings;     // of q or k, to be passed by
  std::string objection;
};

bool is_scalar(const Value* value, double wanted) {
  std::optional<double> c = splat_constant(value);
  return c && *c == wanted;
}

const Value* without_expand(const Value* value) {
  while (const Node* expand = made_by(value, "Expand")) value = expand->input(0);
  return value;
}

// An added mask that is nothing but a choice between 0 and -infinity.
Mask simplified(Value* added) {
  const Value* value = without_expand(added);
  const Node* where = made_by(value, "Where");
  const double infinity = std::numeric_limits<double>::infinity();
  if (where && is_scalar(where->input(1), 0) && is_scalar(where->input(2), -infinity))
    return {Mask::kKeep, where->input(0)};
  if (where && is_scalar(where->input(1), -infinity) && is_scalar(where->input(2), 0))
    return {Mask::kDrop, where->input(0)};
  return {Mask::kAdd, const_cast<Value*>(value)};
}

// Whether the scores' product lies above, through single uses.
bool leads_to_product(const Value* value) {
  for (int depth = 0; depth < 16; ++depth) {
    const Node* node = value->producer();
    if (!node || !value->single_user()) return false;
    if (node->op() == "MatMul") return true;
    const bool is_choice = node->op() == "Where";
    if (node->op() != "Add" && node->op() != "Mul" && node->op() != "Div" && !is_choice) return false;
    const Value* next = nullptr;
    for (size_t i = is_choice ? 1 : 0; i < node->inputs().size(); ++i) {
      if (!node->input(i)->is_constant() && node->input(i)->shape == value->shape && node->input(i)->producer() &&
          node->input(i)->dtype == value->dtype) {
        next = node->input(i);
        break;
      }
    }
    if (!next) return false;
    value = next;
  }
  return false;
}

// From softmax's operand up to the product of q and k.
bool match_scores(Value* value, Match& match) {
  const SymShape shape = value->shape;
  while (true) {
    Node* node = value->producer();
    if (!node || !value->single_user() || value->shape != shape) {
      match.objection = fmt::format("its scores %{} are not a product used by nothing else", value->name);
      return false;
    }
    match.nodes.push_back(node);
    if (node->op() == "MatMul" && node->inputs().size() == 2) {
      match.q = node->input(0);
      match.k_transposed = node->input(1);
      return true;
    }
    std::optional<WithScalar> scaled = match_scalar(value, "Mul");
    std::optional<WithScalar> divided = match_scalar(value, "Div");
    if (scaled || divided) {
      match.scale *= scaled ? scaled->c : 1 / divided->c;
      value = scaled ? scaled->x : divided->x;
      continue;
    }
    if ((node->op() == "Add" || node->op() == "Where") && match.scale != 1) {
      match.objection = "the scale is applied to the mask, too";
      return false;
    }
    if (node->op() == "Add") {
      const size_t scores = leads_to_product(node->input(0)) ? 0 : 1;
      match.masks.push_back(simplified(node->input(1 - scores)));
      value = node->input(scores);
      continue;
    }
    if (node->op() == "Where") {
      const bool keeps = node->input(2)->is_constant();  // cond ? scores : number
      std::optional<double> number = splat_constant(node->input(keeps ? 2 : 1));
      if (!number || *number > kDrowns) {
        match.objection =
            fmt::format("%{} replaces scores by something else than a large negative number", value->name);
        return false;
      }
      if (std::isinf(*number)) {
        match.masks.push_back({keeps ? Mask::kKeep : Mask::kDrop, node->input(0)});
      } else if (keeps) {
        match.objection = "scores that stay are selected against a finite number";
        return false;
      } else {
        match.drowned.emplace_back(node->input(0), *number);
      }
      value = node->input(keeps ? 1 : 2);
      continue;
    }
    match.objection = fmt::format("{} '{}' is between product and softmax", node->op(), value->name);
    return false;
  }
}

// Scalings of q or k above, through moves, each used on this path alone.
void strip_scale(Value* value, Match& match) {
  while (value->single_user()) {
    Node* node = value->producer();
    if (!node) return;
    std::optional<WithScalar> scaled = match_scalar(value, "Mul");
    std::optional<WithScalar> divided = match_scalar(value, "Div");
    if (scaled || divided) {
      match.scale *= scaled ? scaled->c : 1 / divided->c;
      match.scalings.push_back(node);
      value = scaled ? scaled->x : divided->x;
    } else if (node->op() == "Reshape" || node->op() == "Transpose") {
      value = node->input(0);
    } else {
      return;
    }
  }
}

bool check_shapes(const Node& root, Match& match) {
  const SymShape &q = match.q->shape, &k = match.k_transposed->shape, &v = match.v->shape;
  const size_t rank = q.size();
  if ((rank != 3 && rank != 4) || k.size() != rank || v.size() != rank) {
    match.objection =
        fmt::format("q, k and v of {}, {} and {} dims are not heads of batches", q.size(), k.size(), v.size());
    return false;
  }
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (q[i] != k[i] || q[i] != v[i]) {
      match.objection = fmt::format("q {}, k {} and v {} differ in batch or heads", sym_shape_to_string(q),
                                    sym_shape_to_string(k), sym_shape_to_string(v));
      return false;
    }
  }
  if (match.q->dtype != DType::kFloat32 || root.output()->rank() != static_cast<int>(rank)) {
    match.objection = fmt::format("it computes in {}, the kernels in f32", dtype_name(match.q->dtype));
    return false;
  }
  return true;
}

Match match_attention(Node* root, const Node* softmax) {
  Match match;
  Value* weights = root->input(0);
  match.v = root->input(1);
  if (!weights->single_user()) {
    match.objection = fmt::format("its weights %{} are also used elsewhere", weights->name);
    return match;
  }
  if (Node* where = made_by(weights, "Where")) {
    const Node* is_nan = where->input(0)->producer();
    const Value* kept = where->input(2);
    if (!is_scalar(where->input(1), 0) || kept->uses().size() != 2 || kept->is_graph_output() ||
        !where->input(0)->single_user()) {
      match.objection = "the weights are changed by more than zeroing NaN";
      return match;
    }
    match.masked_rows_to_zero = true;
    match.nodes.insert(match.nodes.end(), {where, is_nan, softmax});
  } else {
    match.nodes.push_back(softmax);
  }
  const size_t rank = softmax->input(0)->shape.size();
  if (normalized_axis(softmax->int_or("axis", -1), rank) + 1 != rank) {
    match.objection = "softmax is not along the last dim";
    return match;
  }
  if (!match_scores(softmax->input(0), match) || !check_shapes(*root, match)) return match;
  strip_scale(match.q, match);
  strip_scale(match.k_transposed, match);
  return match;
}

// The softmax that makes the weights of a MatMul, directly or but for zeroing; null when there is none.
const Node* softmax_of(const Node& matmul) {
  const Value* weights = matmul.input(0);
  if (const Node* where = made_by(weights, "Where")) {
    const Node* is_nan = made_by(where->input(0), "IsNaN");
    if (!is_nan || is_nan->input(0) != where->input(2)) return nullptr;
    weights = where->input(2);
  }
  return made_by(weights, "Softmax");
}

class Builder {
 public:
  Builder(Graph& graph, Node* root) : graph_(graph), root_(root) {}

  Result<Value*> add(std::string_view op, std::vector<Value*> inputs, Attributes attributes = {}) {
    return add_before(graph_, root_, op, std::move(inputs), std::move(attributes));
  }

  // All masks as one. Null when there is none.
  Result<Mask> joined(const Match& match) {
    Mask keep{Mask::kKeep, nullptr}, sum{Mask::kAdd, nullptr};
    for (const Mask& mask : match.masks) {
      Value* value = mask.value;
      if (mask.kind == Mask::kAdd) {
        FW_ASSIGN_OR_RETURN(sum.value, merged("Add", sum.value, value));
        continue;
      }
      if (mask.kind == Mask::kDrop) {
        FW_ASSIGN_OR_RETURN(value, add("Not", {value}));
      }
      FW_ASSIGN_OR_RETURN(keep.value, merged("And", keep.value, value));
    }
    for (const auto& [condition, number] : match.drowned) {
      Value* zero = add_scalar(graph_, DType::kFloat32, 0, "zero");
      FW_ASSIGN_OR_RETURN(Value * added,
                          add("Where", {condition, add_scalar(graph_, DType::kFloat32, number, "masked"), zero}));
      FW_ASSIGN_OR_RETURN(sum.value, merged("Add", sum.value, added));
    }
    if (!keep.value || !sum.value) return keep.value ? keep : sum;
    Value* gone = add_scalar(graph_, DType::kFloat32, -std::numeric_limits<double>::infinity(), "masked");
    FW_ASSIGN_OR_RETURN(sum.value, add("Where", {keep.value, sum.value, gone}));
    return sum;
  }

  // [B*H, S, D] as [B*H, 1, S, D].
  Result<Value*> with_heads(Value* value) {
    if (value->rank() != 3) return value;
    SymShape shape = value->shape;
    shape.insert(shape.begin() + 1, DimExpr(1));
    return add_reshape(graph_, root_, value, shape);
  }

 private:
  Result<Value*> merged(std::string_view op, Value* a, Value* b) {
    if (!a) return b;
    return add(op, {a, b});
  }

  Graph& graph_;
  Node* root_;
};

Result<bool> fuse(Graph& graph, Node* root, Match match, std::set<const Node*>& erased) {
  std::vector<std::string> sources;
  Builder builder(graph, root);
  const size_t rank = match.q->shape.size();
  FW_ASSIGN_OR_RETURN(Mask mask, builder.joined(match));
  Value* mask_value = mask.value;
  if (mask_value && rank == 3) {
    FW_ASSIGN_OR_RETURN(mask_value, builder.with_heads(mask_value));
  }
  Perm swap = identity_perm(rank);
  std::swap(swap[rank - 1], swap[rank - 2]);
  FW_ASSIGN_OR_RETURN(Value * k, builder.add("Transpose", {match.k_transposed}, {{"perm", swap}}));
  FW_ASSIGN_OR_RETURN(Value * q, builder.with_heads(match.q));
  FW_ASSIGN_OR_RETURN(k, builder.with_heads(k));
  FW_ASSIGN_OR_RETURN(Value * v, builder.with_heads(match.v));
  std::vector<Value*> inputs{q, k, v};
  int64_t kind = static_cast<int64_t>(kernels::MaskKind::kNone);
  if (mask_value) {
    inputs.push_back(mask_value);
    kind = static_cast<int64_t>(mask.kind == Mask::kAdd ? kernels::MaskKind::kAdd : kernels::MaskKind::kKeep);
  }
  FW_ASSIGN_OR_RETURN(Value * made, builder.add("Attention", std::move(inputs),
                                                {{"scale", match.scale},
                                                 {"mask_kind", kind},
                                                 {"causal", int64_t{0}},
                                                 {"masked_rows_to_zero", int64_t{match.masked_rows_to_zero}}}));
  Node* attention = made->producer();
  attention->sources.clear();
  for (size_t i = match.scalings.size(); i-- > 0;) add_sources(*attention, match.scalings[i]->sources);
  for (size_t i = match.nodes.size(); i-- > 0;) add_sources(*attention, match.nodes[i]->sources);
  add_sources(*attention, root->sources);
  if (rank == 3) {
    FW_ASSIGN_OR_RETURN(made, builder.add("Reshape", {made}, {{"shape", root->output()->shape}}));
  }
  const std::vector<Node*> producers = producers_of(*root);
  FW_RETURN_IF_ERROR(replace_node(graph, root, made));
  erased.insert(root);
  for (Node* producer : producers) erase_unused(graph, producer, erased);
  for (Node* scaling : match.scalings) {
    FW_RETURN_IF_ERROR(bypass_node(graph, scaling, scaling->input(scalar_constant(scaling->input(1)) ? 0 : 1)));
    erased.insert(scaling);
  }
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  bool changed = false;
  std::set<const Node*> erased;
  for (Node* node : node_list(graph)) {
    if (erased.contains(node) || node->op() != "MatMul" || node->inputs().size() != 2) continue;
    const Node* softmax = softmax_of(*node);
    if (!softmax) continue;
    Match match = match_attention(node, softmax);
    if (!match.objection.empty()) {
      context.remark(
          "fuse_attention", *softmax,
          fmt::format("Softmax '{}' not fused into an Attention: {}", softmax->output()->name, match.objection));
      continue;
    }
    FW_ASSIGN_OR_RETURN(bool fused, fuse(graph, node, std::move(match), erased));
    changed |= fused;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kFuseAttention{"fuse_attention", run, false};

}  // namespace flywheel::passes
