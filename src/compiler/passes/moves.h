// SPDX-License-Identifier: Apache-2.0
// Algebra of nodes that only move elements: permutations and which dims of a Reshape's two sides hold the same
// elements. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "tensor/dim_expr.h"

namespace flywheel::passes {

using Perm = std::vector<int64_t>;  // dim i of the result is dim perm[i] of the operand

Perm identity_perm(size_t rank);
Perm inverse(const Perm& perm);
Perm channels_last(size_t rank);  // [0, 2, ..., rank - 1, 1]; REQUIRES: rank >= 2
SymShape permuted_shape(const SymShape& shape, const Perm& perm);
// The dims other than 1 keep their order: transposing is then a mere Reshape.
bool is_trivial(const SymShape& shape, const Perm& perm);

// Dims [x_first, x_last) and [y_first, y_last) hold the same elements. Dims of 1 belong to a neighbour's range.
struct DimGroup {
  size_t x_first, x_last, y_first, y_last;
};
// The finest split of a Reshape from x to y into such groups. Where dims cannot be compared (two symbols), what follows
// is one group.
std::vector<DimGroup> reshape_groups(const SymShape& x, const SymShape& y);

// How a Reshape from x to y looks when x is stored permuted by `perm`: the permutation that the stored result then has.
// Nullopt when the elements would come in another order.
std::optional<Perm> perm_through_reshape(const SymShape& x, const Perm& perm, const SymShape& y);

}  // namespace flywheel::passes
