// SPDX-License-Identifier: Apache-2.0
// What a chain of Reshapes and Transposes does to a tensor, and the shortest chain that does the same. Pure values.
#pragma once

#include <optional>
#include <vector>

#include "compiler/passes/moves.h"

namespace flywheel::passes {

class MoveChain {
 public:
  struct Step {
    bool is_transpose;
    SymShape shape;  // Reshape
    Perm perm;       // Transpose
  };

  explicit MoveChain(const SymShape& base);
  void transpose(const Perm& perm);
  // False when the new dims mix elements that lie apart; the chain is then of no more use.
  bool reshape(const SymShape& shape);

  // The shortest chain found; empty when nothing moves.
  std::vector<Step> shortest() const;
  // A Reshape and a Transpose after it, or the Transpose alone; nullopt when the end is no such thing.
  std::optional<std::vector<Step>> transposed_last() const;

 private:
  std::vector<size_t> order() const;
  void replace(size_t first, size_t count, const SymShape& parts, std::vector<size_t>& order,
               std::vector<std::vector<size_t>>& dims);
  DimExpr size_of(const std::vector<size_t>& atoms) const;
  std::optional<std::vector<Step>> from_base_dims(const std::vector<size_t>& order) const;
  std::optional<std::vector<Step>> to_final_dims() const;
  std::vector<Step> over_blocks(const std::vector<size_t>& order) const;

  SymShape base_, final_;
  // Runs of elements that moved as one so far, in the order in which the base stores them.
  std::vector<DimExpr> atoms_;
  std::vector<std::vector<size_t>> dims_;  // the atoms of each dim of the chain's end; none for a dim of 1
};

}  // namespace flywheel::passes
