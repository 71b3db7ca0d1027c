// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/moves.h"

#include <algorithm>

namespace flywheel::passes {
namespace {

bool is_one(const DimExpr& dim) { return dim == DimExpr(1); }

bool divides(const DimExpr& divisor, const DimExpr& value) {
  if (divisor == DimExpr(0)) return false;
  return DimExpr::floor_div(value, divisor) * divisor == value;
}

// Dims other than 1, in the order in which `perm` stores them.
std::vector<size_t> stored_order(const SymShape& shape, const Perm& perm) {
  std::vector<size_t> order;
  for (int64_t dim : perm) {
    if (!is_one(shape[static_cast<size_t>(dim)])) order.push_back(static_cast<size_t>(dim));
  }
  return order;
}

}  // namespace

Perm identity_perm(size_t rank) {
  Perm perm;
  for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  return perm;
}

Perm inverse(const Perm& perm) {
  Perm result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

Perm channels_last(size_t rank) {
  Perm perm{0};
  for (size_t i = 2; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  perm.push_back(1);
  return perm;
}

SymShape permuted_shape(const SymShape& shape, const Perm& perm) {
  SymShape result;
  for (int64_t dim : perm) result.push_back(shape[static_cast<size_t>(dim)]);
  return result;
}

bool is_trivial(const SymShape& shape, const Perm& perm) {
  std::vector<size_t> order = stored_order(shape, perm);
  return std::is_sorted(order.begin(), order.end());
}

std::vector<DimGroup> reshape_groups(const SymShape& x, const SymShape& y) {
  std::vector<DimGroup> groups;
  const bool empty = std::find(x.begin(), x.end(), DimExpr(0)) != x.end();
  size_t i = 0, j = 0;
  while (i < x.size() || j < y.size()) {
    DimGroup group{i, i, j, j};
    DimExpr px = 1, py = 1;
    bool comparable = !empty;
    auto take_x = [&] { px = px * x[i++]; };
    auto take_y = [&] { py = py * y[j++]; };
    // A group is closed once both sides are equal and more than 1; leading ones come along.
    while (comparable && (px != py || is_one(px))) {
      const bool more_x = i < x.size(), more_y = j < y.size();
      if (!more_x && !more_y) break;
      if (is_one(px) && more_x) {
        take_x();
      } else if (is_one(py) && more_y) {
        take_y();
      } else if (more_x && divides(px, py) && px != py) {
        take_x();
      } else if (more_y && divides(py, px) && px != py) {
        take_y();
      } else if (px.is_constant() && py.is_constant() && more_x && *px.constant() < *py.constant()) {
        take_x();
      } else if (px.is_constant() && py.is_constant() && more_y && *py.constant() < *px.constant()) {
        take_y();
      } else {
        comparable = false;
      }
    }
    // Ones right after a group that is complete belong to it only at the end; elsewhere the next group takes them.
    if (comparable && px == py) {
      const bool rest_is_ones = std::all_of(x.begin() + static_cast<ptrdiff_t>(i), x.end(), is_one) &&
                                std::all_of(y.begin() + static_cast<ptrdiff_t>(j), y.end(), is_one);
      if (rest_is_ones) i = x.size(), j = y.size();
    } else {
      i = x.size(), j = y.size();
    }
    group.x_last = i;
    group.y_last = j;
    groups.push_back(group);
  }
  return groups;
}

std::optional<Perm> perm_through_reshape(const SymShape& x, const Perm& perm, const SymShape& y) {
  const std::vector<DimGroup> groups = reshape_groups(x, y);
  std::vector<size_t> group_of(x.size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = groups[g].x_first; i < groups[g].x_last; ++i) group_of[i] = g;
  }
  std::vector<size_t> group_order, y_order;
  const std::vector<size_t> order = stored_order(x, perm);
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t g = group_of[order[k]];
    if (!group_order.empty() && group_order.back() == g) {
      if (order[k] < order[k - 1]) return std::nullopt;
      continue;
    }
    if (std::find(group_order.begin(), group_order.end(), g) != group_order.end()) return std::nullopt;
    group_order.push_back(g);
  }
  for (size_t g : group_order) {
    for (size_t j = groups[g].y_first; j < groups[g].y_last; ++j) {
      if (!is_one(y[j])) y_order.push_back(j);
    }
  }
  if (y.size() >= 3 && stored_order(y, channels_last(y.size())) == y_order) return channels_last(y.size());
  Perm result(y_order.begin(), y_order.end());
  for (size_t j = 0; j < y.size(); ++j) {
    if (!is_one(y[j])) continue;
    auto after = j == 0 ? result.begin() : std::find(result.begin(), result.end(), static_cast<int64_t>(j) - 1) + 1;
    result.insert(after, static_cast<int64_t>(j));
  }
  return result;
}

}  // namespace flywheel::passes
