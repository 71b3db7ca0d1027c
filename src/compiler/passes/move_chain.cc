// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/move_chain.h"

#include <algorithm>

namespace flywheel::passes {
namespace {

bool is_one(const DimExpr& dim) { return dim == DimExpr(1); }

}  // namespace

MoveChain::MoveChain(const SymShape& base) : base_(base), final_(base) {
  for (size_t i = 0; i < base_.size(); ++i) {
    dims_.emplace_back();
    if (is_one(base_[i])) continue;
    dims_.back().push_back(atoms_.size());
    atoms_.push_back(base_[i]);
  }
}

void MoveChain::transpose(const Perm& perm) {
  std::vector<std::vector<size_t>> moved;
  for (int64_t dim : perm) moved.push_back(dims_[static_cast<size_t>(dim)]);
  dims_ = std::move(moved);
  final_ = permuted_shape(final_, perm);
}

bool MoveChain::reshape(const SymShape& shape) {
  std::vector<size_t> order = this->order();
  SymShape sizes;
  for (size_t atom : order) sizes.push_back(atoms_[atom]);
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
  final_ = shape;
  return true;
}

std::vector<MoveChain::Step> MoveChain::shortest() const {
  const std::vector<size_t> order = this->order();
  if (std::is_sorted(order.begin(), order.end())) {
    if (base_ == final_) return {};
    return {{false, final_, {}}};
  }
  std::optional<std::vector<Step>> best = from_base_dims(order);
  for (const auto& candidate : {to_final_dims(), std::optional(over_blocks(order))}) {
    if (candidate && (!best || candidate->size() < best->size())) best = candidate;
  }
  return *best;
}

std::optional<std::vector<MoveChain::Step>> MoveChain::transposed_last() const {
  std::optional<std::vector<Step>> direct = from_base_dims(order());
  if (direct && direct->size() == 1) return direct;
  return to_final_dims();
}

std::vector<size_t> MoveChain::order() const {
  std::vector<size_t> order;
  for (const auto& dim : dims_) order.insert(order.end(), dim.begin(), dim.end());
  return order;
}

// Atoms [first, first + count) become `parts`; ids behind them shift.
void MoveChain::replace(size_t first, size_t count, const SymShape& parts, std::vector<size_t>& order,
                        std::vector<std::vector<size_t>>& dims) {
  atoms_.erase(atoms_.begin() + static_cast<ptrdiff_t>(first), atoms_.begin() + static_cast<ptrdiff_t>(first + count));
  for (size_t k = 0; k < parts.size(); ++k) {
    atoms_.insert(atoms_.begin() + static_cast<ptrdiff_t>(first + k), parts[k]);
  }
  auto shift = [&](size_t& atom) {
    if (atom >= first + count) atom = atom - count + parts.size();
  };
  for (size_t& atom : order) shift(atom);
  for (auto& dim : dims) {
    for (size_t& atom : dim) shift(atom);
  }
}

DimExpr MoveChain::size_of(const std::vector<size_t>& atoms) const {
  DimExpr size = 1;
  for (size_t atom : atoms) size = size * atoms_[atom];
  return size;
}

// Transpose of the base as it is, then a Reshape if need be.
std::optional<std::vector<MoveChain::Step>> MoveChain::from_base_dims(const std::vector<size_t>& order) const {
  std::vector<std::pair<size_t, int64_t>> starts;  // first atom of each base dim other than 1
  size_t atom = 0;
  std::vector<int64_t> ones;
  for (size_t i = 0; i < base_.size(); ++i) {
    if (is_one(base_[i])) {
      ones.push_back(static_cast<int64_t>(i));
      continue;
    }
    starts.emplace_back(atom, static_cast<int64_t>(i));
    DimExpr covered = 1;
    while (atom < atoms_.size() && covered != base_[i]) covered = covered * atoms_[atom++];
    if (covered != base_[i]) return std::nullopt;
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
  for (const DimExpr& dim : final_) {
    if (is_one(dim) && next_one < ones.size()) {
      perm.push_back(ones[next_one++]);
    } else if (next_wide < wide.size()) {
      perm.push_back(wide[next_wide++]);
    }
  }
  while (next_wide < wide.size()) perm.push_back(wide[next_wide++]);
  while (next_one < ones.size()) perm.push_back(ones[next_one++]);
  std::vector<Step> steps{{true, {}, perm}};
  if (permuted_shape(base_, perm) != final_) steps.push_back({false, final_, {}});
  return steps;
}

// A Reshape first, so that the Transpose ends in the final shape.
std::optional<std::vector<MoveChain::Step>> MoveChain::to_final_dims() const {
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
  Perm perm(final_.size());
  for (size_t k = 0; k < dims.size(); ++k) {
    shape.push_back(final_[dims[k]]);
    perm[dims[k]] = static_cast<int64_t>(k);
  }
  return std::vector<Step>{{false, shape, {}}, {true, {}, perm}};
}

// The coarsest blocks that move as one.
std::vector<MoveChain::Step> MoveChain::over_blocks(const std::vector<size_t>& order) const {
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
  return {{false, shape, {}}, {true, {}, perm}, {false, final_, {}}};
}

}  // namespace flywheel::passes
