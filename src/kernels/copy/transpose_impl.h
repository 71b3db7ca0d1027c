// SPDX-License-Identifier: Apache-2.0
// The loops of transpose_isa.h; included by transpose_<isa>.cc alone.
#pragma once

#include "kernels/copy/transpose_isa.h"
#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {

// A few rows (planes) become a few adjacent columns (channels). With the count known and no gap between pixels the
// compiler interleaves whole vectors.
template <class T, int kRows>
static inline void interleave(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t columns) {
  if (y_stride == kRows) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int r = 0; r < kRows; ++r) y[c * kRows + r] = x[r * x_stride + c];
    }
  } else {
    for (int64_t c = 0; c < columns; ++c) {
      for (int r = 0; r < kRows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
    }
  }
}

template <class T, int kColumns>
static inline void deinterleave(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows) {
  if (x_stride == kColumns) {
    for (int c = 0; c < kColumns; ++c) {
      for (int64_t r = 0; r < rows; ++r) y[c * y_stride + r] = x[r * kColumns + c];
    }
  } else {
    for (int c = 0; c < kColumns; ++c) {
      for (int64_t r = 0; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
    }
  }
}

// Square blocks, so that both sides are touched a cache line at a time.
template <class T>
static inline void transpose_blocks(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                                    int64_t columns) {
  constexpr int64_t kBlock = 64 / sizeof(T) < 16 ? 16 : 64 / sizeof(T);
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = r0 + kBlock < rows ? r0 + kBlock : rows;
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = c0 + kBlock < columns ? c0 + kBlock : columns;
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) y[c * y_stride + r] = x[r * x_stride + c];
      }
    }
  }
}

// Blocks of vectors, transposed in registers. Blocks cut off by an edge go through a buffer.
static inline void transpose_floats(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows,
                                    int64_t columns) {
  alignas(64) float in[kLanes * kLanes], out[kLanes * kLanes];
  for (int64_t r = 0; r < rows; r += kLanes) {
    const int64_t height = rows - r < kLanes ? rows - r : kLanes;
    for (int64_t c = 0; c < columns; c += kLanes) {
      const int64_t width = columns - c < kLanes ? columns - c : kLanes;
      const float* from = x + r * x_stride + c;
      float* to = y + c * y_stride + r;
      if (height == kLanes && width == kLanes) {
        transpose_block(from, x_stride, to, y_stride);
        continue;
      }
      for (int64_t i = 0; i < height; ++i) store(in + i * kLanes, load_first(from + i * x_stride, width));
      transpose_block(in, kLanes, out, kLanes);
      for (int64_t i = 0; i < width; ++i) store_first(to + i * y_stride, load(out + i * kLanes), height);
    }
  }
}

template <class T>
static inline void transpose_elements(const Transposition& work) {
  const T* x = static_cast<const T*>(work.x);
  T* y = static_cast<T*>(work.y);
  if (work.rows == 2) return interleave<T, 2>(x, work.x_stride, y, work.y_stride, work.columns);
  if (work.rows == 3) return interleave<T, 3>(x, work.x_stride, y, work.y_stride, work.columns);
  if (work.rows == 4) return interleave<T, 4>(x, work.x_stride, y, work.y_stride, work.columns);
  if (work.columns == 2) return deinterleave<T, 2>(x, work.x_stride, y, work.y_stride, work.rows);
  if (work.columns == 3) return deinterleave<T, 3>(x, work.x_stride, y, work.y_stride, work.rows);
  if (work.columns == 4) return deinterleave<T, 4>(x, work.x_stride, y, work.y_stride, work.rows);
  if constexpr (sizeof(T) == sizeof(float)) {
    transpose_floats(static_cast<const float*>(work.x), work.x_stride, static_cast<float*>(work.y), work.y_stride,
                     work.rows, work.columns);
  } else {
    transpose_blocks(x, work.x_stride, y, work.y_stride, work.rows, work.columns);
  }
}

void transpose(const Transposition& work) {
  switch (work.element_bytes) {
    case 1: return transpose_elements<uint8_t>(work);
    case 2: return transpose_elements<uint16_t>(work);
    case 4: return transpose_elements<uint32_t>(work);
    default: return transpose_elements<uint64_t>(work);
  }
}

}  // namespace flywheel::kernels::FW_ISA
