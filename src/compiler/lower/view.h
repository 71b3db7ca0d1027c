// SPDX-License-Identifier: Apache-2.0
// Symbolic views of storage: how a value lies in memory while the graph is lowered. Reshape, Transpose, Slice, Split
// and Expand become views of their operand's storage, parts of a Concat views of its result's, wherever the kernels on
// both sides can take it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "engine/plan.h"

namespace flywheel::lower {

// One block of memory. Owned by the lowering; views point to it.
struct Storage {
  engine::Space space = engine::Space::kArena;
  int index = 0;                              // kInput, kOutput: which
  const ir::ConstTensor* constant = nullptr;  // kWeights
  DimExpr elements;                           // extent
  DType dtype = DType::kFloat32;
  int first_step = -1, last_step = -1;  // kArena: lifetime, in steps
  uint64_t offset = 0, size_bytes = 0;  // kArena, kWeights: placed at the end; size at the profile's max
};

struct View {
  Storage* storage = nullptr;
  DimExpr offset;  // elements
  SymShape dims, strides;

  static View contiguous(Storage* storage, SymShape dims);
  bool is_contiguous() const;  // provably, for all shapes
  bool innermost_unit() const;
};

DimExpr product(const SymShape& dims);
SymShape contiguous_strides(const SymShape& dims);

// The same elements in row-major order under other dims, without a copy; nullopt when strides do not allow it.
std::optional<View> reshape_view(const View& view, const SymShape& dims);
View transpose_view(const View& view, const std::vector<int64_t>& permutation);
// Elements start, start + step, ... along an axis, `extent` of them.
View slice_view(const View& view, size_t axis, const DimExpr& start, int64_t step, const DimExpr& extent);
// NumPy broadcasting: leading dims are added, dims of extent 1 get stride 0 where the target differs.
View broadcast_view(const View& view, const SymShape& dims);
// Leading dims merged until `rank` are left; nullopt when strides do not allow it.
std::optional<View> collapse_leading(const View& view, size_t rank);

}  // namespace flywheel::lower
