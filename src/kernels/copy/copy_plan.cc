// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy/copy_plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace flywheel::kernels {
namespace {

constexpr int64_t kPieceBytes = 32 << 10;

template <class T>
void copy_typed(const std::byte* x, int64_t x_stride, std::byte* y, int64_t y_stride, int64_t count) {
  const T* from = reinterpret_cast<const T*>(x);
  T* to = reinterpret_cast<T*>(y);
  for (int64_t i = 0; i < count; ++i) to[i * y_stride] = from[i * x_stride];
}

template <class T>
void fill_typed(std::byte* y, int64_t stride, int64_t count, uint64_t bits) {
  T* to = reinterpret_cast<T*>(y);
  const T value = static_cast<T>(bits);
  if (stride == 1) {
    std::fill(to, to + count, value);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * stride] = value;
  }
}

// Rows of a size known to the compiler: a call to memcpy would cost more than the bytes.
template <int kBytes>
void copy_short_rows(const std::byte* x, int64_t x_stride_bytes, std::byte* y, int64_t y_stride_bytes, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(y + r * y_stride_bytes, x + r * x_stride_bytes, kBytes);
}

void copy_rows(const std::byte* x, int64_t x_stride_bytes, std::byte* y, int64_t y_stride_bytes, int64_t rows,
               int64_t row_bytes) {
  switch (row_bytes) {
    case 4: return copy_short_rows<4>(x, x_stride_bytes, y, y_stride_bytes, rows);
    case 8: return copy_short_rows<8>(x, x_stride_bytes, y, y_stride_bytes, rows);
    case 12: return copy_short_rows<12>(x, x_stride_bytes, y, y_stride_bytes, rows);
    case 16: return copy_short_rows<16>(x, x_stride_bytes, y, y_stride_bytes, rows);
    case 32: return copy_short_rows<32>(x, x_stride_bytes, y, y_stride_bytes, rows);
    default: break;
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(y + r * y_stride_bytes, x + r * x_stride_bytes, static_cast<size_t>(row_bytes));
  }
}

uint64_t read_bits(const std::byte* x, int64_t element_bytes) {
  uint64_t bits = 0;
  switch (element_bytes) {
    case 1: return static_cast<uint64_t>(*x);
    case 2: {
      uint16_t v;
      std::memcpy(&v, x, sizeof v);
      return v;
    }
    case 4: {
      uint32_t v;
      std::memcpy(&v, x, sizeof v);
      return v;
    }
    default: std::memcpy(&bits, x, sizeof bits); return bits;
  }
}

}  // namespace

void fill_elements(std::byte* y, int64_t stride, int64_t count, uint64_t bits, int64_t element_bytes) {
  switch (element_bytes) {
    case 1: return fill_typed<uint8_t>(y, stride, count, bits);
    case 2: return fill_typed<uint16_t>(y, stride, count, bits);
    case 4: return fill_typed<uint32_t>(y, stride, count, bits);
    default: return fill_typed<uint64_t>(y, stride, count, bits);
  }
}

void copy_elements(const std::byte* x, int64_t x_stride, std::byte* y, int64_t y_stride, int64_t count,
                   int64_t element_bytes) {
  if (x_stride == 1 && y_stride == 1) {
    std::memcpy(y, x, static_cast<size_t>(count * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1: return copy_typed<uint8_t>(x, x_stride, y, y_stride, count);
    case 2: return copy_typed<uint16_t>(x, x_stride, y, y_stride, count);
    case 4: return copy_typed<uint32_t>(x, x_stride, y, y_stride, count);
    default: return copy_typed<uint64_t>(x, x_stride, y, y_stride, count);
  }
}

CopyPlan CopyPlan::make(std::span<const int64_t> dims, const Dims& y_strides, const Dims& x_strides,
                        int64_t element_bytes, int workers, TransposeFn transpose) {
  CopyPlan plan;
  const Dims strides[] = {y_strides, x_strides};
  plan.nest_ = LoopNest::make(dims, strides, LoopOrder::kByFirstOperand, 2);
  plan.element_bytes_ = element_bytes;
  plan.transpose_ = transpose;
  LoopNest& nest = plan.nest_;
  const int rank = nest.rank(), last = rank - 1;
  const int64_t y_inner = nest.strides[0][last], x_inner = nest.strides[1][last];
  if (y_inner == 1 && x_inner == 1) {
    plan.way_ = Way::kRows;
  } else if (y_inner == 1 && x_inner == 0) {
    plan.way_ = Way::kFill;
  } else if (y_inner == 1) {
    for (int d = 0; d < last; ++d) {
      if (nest.strides[1][d] != 1 || nest.extents[d] < 2) continue;
      // Rows of the transposition run along y's inner dim, columns along dim d, where x is contiguous.
      auto move_to_end = [&](auto& list) { std::rotate(list.begin() + d, list.begin() + d + 1, list.end()); };
      move_to_end(nest.extents);
      move_to_end(nest.strides[0]);
      move_to_end(nest.strides[1]);
      plan.way_ = Way::kTranspose;
      break;
    }
  }
  plan.split(workers);
  return plan;
}

void CopyPlan::split(int workers) {
  const int rank = nest_.rank();
  outer_ = nest_.points(0, rank - 2);
  rows_ = nest_.extents[rank - 2];
  columns_ = nest_.extents[rank - 1];
  const int64_t total = outer_ * rows_ * columns_;
  // Whole lines of 64 elements, so that members do not share cache lines more than they must.
  const int64_t elements =
      std::max<int64_t>(64, std::min(kPieceBytes / element_bytes_, total / (4 * workers)) / 64 * 64);
  if (way_ == Way::kTranspose) {
    // Few rows (the channels of a pixel) at once, so that y's cache lines fill up; else whole blocks.
    piece_rows_ =
        rows_ <= 128 ? rows_ : std::clamp<int64_t>(elements / std::max<int64_t>(1, columns_) / 16 * 16, 64, rows_);
    piece_columns_ = std::min(columns_, std::max<int64_t>(64, elements / std::max<int64_t>(1, piece_rows_) / 64 * 64));
  } else {
    piece_columns_ = std::min(columns_, elements);
    piece_rows_ = std::min(rows_, elements / std::max<int64_t>(1, piece_columns_));
  }
  piece_rows_ = std::max<int64_t>(1, piece_rows_);
  piece_columns_ = std::max<int64_t>(1, piece_columns_);
  row_pieces_ = (rows_ + piece_rows_ - 1) / piece_rows_;
  column_pieces_ = (columns_ + piece_columns_ - 1) / piece_columns_;
}

void CopyPlan::run_piece(const std::byte* x, std::byte* y, int64_t rows, int64_t columns) const {
  const size_t row_dim = nest_.extents.size() - 2;
  const int64_t y_row = nest_.strides[0][row_dim], x_row = nest_.strides[1][row_dim];
  const int64_t y_column = nest_.strides[0][row_dim + 1], x_column = nest_.strides[1][row_dim + 1];
  switch (way_) {
    case Way::kRows:
      copy_rows(x, x_row * element_bytes_, y, y_row * element_bytes_, rows, columns * element_bytes_);
      return;
    case Way::kFill:
      for (int64_t r = 0; r < rows; ++r) {
        fill_elements(y + r * y_row * element_bytes_, 1, columns,
                      read_bits(x + r * x_row * element_bytes_, element_bytes_), element_bytes_);
      }
      return;
    case Way::kTranspose: transpose_({element_bytes_, x, x_row, y, y_column, rows, columns}); return;
    case Way::kElements:
      for (int64_t r = 0; r < rows; ++r) {
        copy_elements(x + r * x_row * element_bytes_, x_column, y + r * y_row * element_bytes_, y_column, columns,
                      element_bytes_);
      }
      return;
  }
}

void CopyPlan::run(const std::byte* x, std::byte* y, int64_t begin, int64_t end) const {
  if (begin >= end) return;
  const int outer_dims = nest_.rank() - 2;
  const size_t row_dim = nest_.extents.size() - 2;
  const int64_t per_outer = row_pieces_ * column_pieces_;
  NestWalker walker(nest_, outer_dims, begin / per_outer);
  for (int64_t piece = begin, inner = begin % per_outer; piece < end; ++piece) {
    const int64_t row = inner / column_pieces_ * piece_rows_, column = inner % column_pieces_ * piece_columns_;
    auto at = [&](int operand) {
      return (walker.offset(operand) + row * nest_.strides[operand][row_dim] +
              column * nest_.strides[operand][row_dim + 1]) *
             element_bytes_;
    };
    run_piece(x + at(1), y + at(0), std::min(piece_rows_, rows_ - row), std::min(piece_columns_, columns_ - column));
    if (++inner == per_outer) {
      inner = 0;
      walker.next();
    }
  }
}

}  // namespace flywheel::kernels
