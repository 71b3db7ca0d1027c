// SPDX-License-Identifier: Apache-2.0
// simplify_moves: chains of Reshape and Transpose become the shortest chain that does the same: pairs cancel, a
// Transpose that only moves dims of 1 becomes a Reshape, Reshape-Transpose-Reshape one Transpose where it is one.
#include <algorithm>

#include "compiler/passes/moves.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool is_one(const DimExpr& dim) { return dim == DimExpr(1); }

// A run of elements that the chain has moved as one so far. Ids ascend in the order in which the base tensor stores
// them.
struct Atom {
  DimExpr size;
};

// How the end of a chain lies over the base tensor.
class Chain {
 public:
  explicit Chain(const SymShape& base) {
    for (size_t i = 0; i < base.size(); ++i) {
      dims_.emplace_back();
      if (is_one(base[i])) continue;
      dims_.back().push_back(atoms_.size());
      atoms_.push_back({base[i]});
    }
  }

  void transpose(const Perm& perm) {
    std::vector<std::vector<size_t>> moved;
    for (int64_t dim : perm) moved.push_back(dims_[static_cast<size_t>(dim)]);
    dims_ = std::move(moved);
  }

  // False when the new dims mix elements that lie apart.
  bool reshape(const SymShape& shape) {
    std::vector<size_t> order = this->order();
    SymShape sizes;
    for (size_t atom : order) sizes.push_back(atoms_[atom].size);
    const std::vector<DimGroup> groups = reshape_groups(sizes, shape);
    std::vector<std::vector<size_t>> dims(shape.size());
    // From the last group on, so that what splitting renumbers is behind.
    for (size_t g = groups.size(); g-- > 0;) {
      const DimGroup& group = groups[g];
      std::vector<size_t> wide;  // result dims other than 1
      for (size_t j = group.y_first; j < group.y_last; ++j) {
        if (!is_one(shape[j])) wide.push_back(j);
      }
      std::vector<size_t> members(order.begin() + static_cast<ptrdiff_t>(group.x_first),
                                  order.begin() + static_cast<ptrdiff_t>(group.x_last));
      if (members.empty() && wide.empty()) continue;
      if (members.empty() || wide.empty()) return false;
      if (wide.size() == 1) {
        dims[wide[0]] = members;
        continue;
      }
      for (size_t k = 1; k < members.size(); ++k) {
        if (members[k] != members[k - 1] + 1) return false;
      }
      SymShape parts;
      for (size_t j : wide) parts.push_back(shape[j]);
      replace(members.front(), members.size(), parts, order, dims);
      for (size_t k = 0; k < wide.size(); ++k) dims[wide[k]] = {members.front() + k};
    }
    dims_ = std::move(dims);
    return true;
  }

  struct Step {
    bool is_transpose;
    SymShape shape;  // Reshape
    Perm perm;       // Transpose
  };
  // The shortest chain found from a base of this shape to `final`.
  std::vector<Step> steps(const SymShape& base, const SymShape& final) const {
    const std::vector<size_t> order = this->order();
    if (std::is_sorted(order.begin(), order.end())) {
      if (base == final) return {};
      return {{false, final, {}}};
    }
    std::optional<std::vector<Step>> best = from_base_dims(base, final, order);
    for (const auto& candidate : {to_final_dims(final), std::optional(over_blocks(final, order))}) {
      if (candidate && (!best || candidate->size() < best->size())) best = candidate;
    }
    // The ends need no Reshape where it changes nothing.
    return *best;
  }

 private:
  std::vector<size_t> order() const {
    std::vector<size_t> order;
    for (const auto& dim : dims_) order.insert(order.end(), dim.begin(), dim.end());
    return order;
  }

  // Atoms [first, first + count) become `parts`; ids behind them shift.
  void replace(size_t first, size_t count, const SymShape& parts, std::vector<size_t>& order,
               std::vector<std::vector<size_t>>& dims) {
    atoms_.erase(atoms_.begin() + static_cast<ptrdiff_t>(first),
                 atoms_.begin() + static_cast<ptrdiff_t>(first + count));
    for (size_t k = 0; k < parts.size(); ++k) {
      atoms_.insert(atoms_.begin() + static_cast<ptrdiff_t>(first + k), Atom{parts[k]});
    }
    auto shift = [&](size_t& atom) {
      if (atom >= first + count) atom = atom - count + parts.size();
    };
    for (size_t& atom : order) shift(atom);
    for (auto& dim : dims) {
      for (size_t& atom : dim) shift(atom);
    }
  }

  DimExpr size_of(const std::vector<size_t>& atoms) const {
    DimExpr size = 1;
    for (size_t atom : atoms) size = size * atoms_[atom].size;
    return size;
  }

  // Transpose of the base as it is, then a Reshape if need be.
  std::optional<std::vector<Step>> from_base_dims(const SymShape& base, const SymShape& final,
                                                  const std::vector<size_t>& order) const {
    std::vector<std::pair<size_t, int64_t>> starts;  // first atom of each base dim other than 1
    size_t atom = 0;
    std::vector<int64_t> ones;
    for (size_t i = 0; i < base.size(); ++i) {
      if (is_one(base[i])) {
        ones.push_back(static_cast<int64_t>(i));
        continue;
      }
      starts.emplace_back(atom, static_cast<int64_t>(i));
      DimExpr covered = 1;
      while (atom < atoms_.size() && covered != base[i]) covered = covered * atoms_[atom++].size;
      if (covered != base[i]) return std::nullopt;
    }
    if (atom != atoms_.size()) return std::nullopt;
    Perm wide;  // base dims other than 1, in the final order
    for (size_t k = 0; k < order.size();) {
      auto start = std::find_if(starts.begin(), starts.end(), [&](const auto& s) { return s.first == order[k]; });
      if (start == starts.end()) return std::nullopt;
      const size_t end = start + 1 == starts.end() ? atoms_.size() : (start + 1)->first;
      for (size_t a = start->first; a < end; ++a, ++k) {
        if (k >= order.size() || order[k] != a) return std::nullopt;
      }
      wide.push_back(start->second);
    }
    // Dims of 1 go where the final shape has them, if it has as many.
    Perm perm;
    size_t next_wide = 0, next_one = 0;
    for (const DimExpr& dim : final) {
      if (is_one(dim) && next_one < ones.size()) {
        perm.push_back(ones[next_one++]);
      } else if (next_wide < wide.size()) {
        perm.push_back(wide[next_wide++]);
      }
    }
    while (next_wide < wide.size()) perm.push_back(wide[next_wide++]);
    while (next_one < ones.size()) perm.push_back(ones[next_one++]);
    std::vector<Step> steps{{true, {}, perm}};
    if (permuted_shape(base, perm) != final) steps.push_back({false, final, {}});
    return steps;
  }

  // A Reshape first, so that the Transpose ends in the final shape.
  std::optional<std::vector<Step>> to_final_dims(const SymShape& final) const {
    std::vector<size_t> dims;  // of the final shape, in base order, dims of 1 last
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (!dims_[i].empty()) dims.push_back(i);
      for (size_t k = 1; k < dims_[i].size(); ++k) {
        if (dims_[i][k] != dims_[i][k - 1] + 1) return std::nullopt;
      }
    }
    std::sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return dims_[a][0] < dims_[b][0]; });
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (dims_[i].empty()) dims.push_back(i);
    }
    SymShape shape;
    Perm perm(final.size());
    for (size_t k = 0; k < dims.size(); ++k) {
      shape.push_back(final[dims[k]]);
      perm[dims[k]] = static_cast<int64_t>(k);
    }
    return std::vector<Step>{{false, shape, {}}, {true, {}, perm}};
  }

  // The coarsest blocks that move as one.
  std::vector<Step> over_blocks(const SymShape& final, const std::vector<size_t>& order) const {
    std::vector<std::vector<size_t>> blocks;  // in final order
    for (size_t atom : order) {
      if (!blocks.empty() && blocks.back().back() + 1 == atom) {
        blocks.back().push_back(atom);
      } else {
        blocks.push_back({atom});
      }
    }
    std::vector<size_t> by_base;
    for (size_t i = 0; i < blocks.size(); ++i) by_base.push_back(i);
    std::sort(by_base.begin(), by_base.end(), [&](size_t a, size_t b) { return blocks[a][0] < blocks[b][0]; });
    SymShape shape;
    Perm perm(blocks.size());
    for (size_t k = 0; k < by_base.size(); ++k) {
      shape.push_back(size_of(blocks[by_base[k]]));
      perm[by_base[k]] = static_cast<int64_t>(k);
    }
    return {{false, shape, {}}, {true, {}, perm}, {false, final, {}}};
  }

  std::vector<Atom> atoms_;
  std::vector<std::vector<size_t>> dims_;  // the atoms of each dim of the chain's end
};

constexpr int kTransposeWeight = 16;  // a Reshape is mostly a view

bool is_move(const Node* node) { return node && (node->op() == "Reshape" || node->op() == "Transpose"); }
int weight(const Node& node) { return node.op() == "Transpose" ? kTransposeWeight : 1; }

Result<bool> shorten(Graph& graph, Node* end) {
  // path: from the end back to the base. What only this chain uses goes away with it.
  std::vector<Node*> path;
  for (Node* node = end; is_move(node); node = node->input(0)->producer()) path.push_back(node);
  const SymShape final = end->output()->shape;
  int best_gain = 0;
  Value* best_base = nullptr;
  std::vector<Chain::Step> best_steps;
  int saved = 0;
  bool dies = true;
  for (size_t length = 1; length <= path.size(); ++length) {
    const Node* first = path[length - 1];
    if (length > 1 && !first->output()->single_user()) dies = false;
    if (dies) saved += weight(*first);
    Value* base = first->input(0);
    Chain chain(base->shape);
    bool fits = true;
    for (size_t i = length; i-- > 0 && fits;) {
      if (path[i]->op() == "Transpose") {
        chain.transpose(path[i]->ints_or("perm", {}));
      } else {
        fits = chain.reshape(path[i]->output()->shape);
      }
    }
    if (!fits) break;
    std::vector<Chain::Step> steps = chain.steps(base->shape, final);
    int cost = 0;
    for (const Chain::Step& step : steps) cost += step.is_transpose ? kTransposeWeight : 1;
    if (saved - cost <= best_gain) continue;
    best_gain = saved - cost;
    best_base = base;
    best_steps = std::move(steps);
  }
  if (!best_base) return false;
  Value* value = best_base;
  for (const Chain::Step& step : best_steps) {
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
