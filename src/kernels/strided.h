// SPDX-License-Identifier: Apache-2.0
// Loops over strided views: several operands walked together over one set of extents, with dims merged where every
// operand allows it. Built at bind time by pointwise, copy, reduce and gather; immutable afterwards.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tensor/shape.h"

namespace flywheel::kernels {

// Strides of `desc` over `dims`, to which it broadcasts NumPy-style: 0 where it repeats.
// REQUIRES: it does broadcast.
Dims broadcast_strides(const TensorDesc& desc, std::span<const int64_t> dims);
bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to);

enum class LoopOrder { kAsGiven, kByFirstOperand };

// A nest of loops, outermost first. Extents of 1 are gone and neighbours that all operands walk evenly are merged; rank
// is at least `min_rank` (leading extents of 1 fill up).
struct LoopNest {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // [operand][dim], in elements

  // kByFirstOperand sorts dims by falling stride of operand 0, so that its memory is walked in order.
  static LoopNest make(std::span<const int64_t> dims, std::span<const Dims> strides, LoopOrder order, int min_rank);
  int rank() const { return static_cast<int>(extents.size()); }
  int64_t points(int from, int to) const;  // product of extents [from, to)
  // Offset, for `operand`, of the point with row-major number `index` among dims [0, to).
  int64_t offset(int operand, int64_t index, int to) const {
    int64_t at = 0;
    for (int d = to - 1; d > 0; --d) {
      at += index % extents[d] * strides[operand][d];
      index /= extents[d];
    }
    return to > 0 ? at + index * strides[operand][0] : 0;
  }
};

// Steps through the points of dims [0, dims) of a nest in row-major order, keeping the offset of every operand.
// REQUIRES: at most kWalkedOperands operands.
class NestWalker {
 public:
  static constexpr int kWalkedOperands = 3;
  // Starts at the point with row-major number `start`, which is below the number of points.
  NestWalker(const LoopNest& nest, int dims, int64_t start);
  int64_t offset(int operand) const { return offsets_[operand]; }
  void next() {
    for (int d = dims_ - 1; d >= 0; --d) {
      for (int o = 0; o < operands_; ++o) offsets_[o] += nest_->strides[o][d];
      if (++index_[d] < nest_->extents[d] || d == 0) return;
      for (int o = 0; o < operands_; ++o) offsets_[o] -= nest_->strides[o][d] * nest_->extents[d];
      index_[d] = 0;
    }
  }

 private:
  const LoopNest* nest_;
  int dims_, operands_;
  int64_t index_[kMaxRank] = {};
  int64_t offsets_[kWalkedOperands] = {};
};

}  // namespace flywheel::kernels
