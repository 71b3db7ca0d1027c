// SPDX-License-Identifier: Apache-2.0
// How a copy between two views is done: chosen once at bind time from the views alone, run by every member of a team.
// Immutable after make; any thread.
#pragma once

#include "kernels/copy/transpose_isa.h"
#include "kernels/strided.h"

namespace flywheel::kernels {

class CopyPlan {
 public:
  CopyPlan() = default;
  static CopyPlan make(std::span<const int64_t> dims, const Dims& y_strides, const Dims& x_strides,
                       int64_t element_bytes, int workers, TransposeFn transpose);
  // Pieces of work of about equal size; piece i may be run by any thread.
  int64_t pieces() const { return outer_ * row_pieces_ * column_pieces_; }
  void run(const std::byte* x, std::byte* y, int64_t begin, int64_t end) const;

 private:
  enum class Way { kRows, kFill, kTranspose, kElements };
  void run_piece(const std::byte* x, std::byte* y, int64_t rows, int64_t columns) const;
  void split(int workers);

  // Operands: 0 is y, 1 is x. The last two dims are rows and columns of a piece; y is contiguous along the columns,
  // except in kTranspose (x is contiguous along the columns, y along the rows) and kElements.
  LoopNest nest_;
  Way way_ = Way::kElements;
  int64_t element_bytes_ = 1;
  TransposeFn transpose_ = nullptr;
  int64_t outer_ = 0, rows_ = 0, columns_ = 0;
  int64_t piece_rows_ = 1, piece_columns_ = 1, row_pieces_ = 0, column_pieces_ = 0;
};

// `count` times the element whose bytes are the low ones of `bits`, `stride` elements apart.
void fill_elements(std::byte* y, int64_t stride, int64_t count, uint64_t bits, int64_t element_bytes);
// `count` elements of one view row to another.
void copy_elements(const std::byte* x, int64_t x_stride, std::byte* y, int64_t y_stride, int64_t count,
                   int64_t element_bytes);

}  // namespace flywheel::kernels
