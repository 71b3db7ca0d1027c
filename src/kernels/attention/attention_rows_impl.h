// SPDX-License-Identifier: Apache-2.0
// The row functions of attention, the same text for every ISA: included by attention_rows_<isa>.cc alone. A result
// depends on its row alone: sums go lane by lane over the row, then over the lanes in a fixed order.
#pragma once

#include "kernels/attention/attention_rows.h"
#include "kernels/simd/vec.h"
#include "kernels/simd/vector_math.h"

namespace flywheel::kernels::FW_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Scaled and masked scores of keys [j, j + n) of a row, n <= kLanes; lanes from n on are -infinity.
FW_INLINE Vf masked_scores(const ScoreRow& row, int64_t j, int64_t n) {
  Vf s = load_first(row.scores + j, n) * splat(row.scale);
  if (row.add != nullptr) {
    if (row.add_stride == 1) {
      s = s + load_first(row.add + j, n);
    } else {
      float gathered[kLanes] = {};
      for (int64_t i = 0; i < n; ++i) gathered[i] = row.add[(j + i) * row.add_stride];
      s = s + load(gathered);
    }
  }
  if (row.keep != nullptr) {
    float hidden[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) hidden[i] = row.keep[(j + i) * row.keep_stride] != 0 ? 0.0F : kMinusInfinity;
    // Not added: NaN scores of hidden keys stay hidden.
    s = select(load(hidden) == splat(kMinusInfinity), splat(kMinusInfinity), s);
  }
  return select(lanes_below(n), s, splat(kMinusInfinity));
}

}  // namespace

void score_row_to_probabilities(const ScoreRow& row) {
  Vf largest = splat(kMinusInfinity), nan = splat(0.0F);
  for (int64_t j = 0; j < row.visible; j += kLanes) {
    const int64_t n = row.visible - j < kLanes ? row.visible - j : kLanes;
    const Vf s = masked_scores(row, j, n);
    store_first(row.scores + j, s, n);
    nan = select(is_nan(s), s, nan);
    largest = max(largest, s);
  }
  const float maximum = any(is_nan(nan)) ? __builtin_nanf("") : max_lanes(largest);
  if (maximum == kMinusInfinity && row.masked_rows_to_zero) {
    for (int64_t j = 0; j < row.keys; ++j) row.scores[j] = 0;
    return;
  }
  Vf sums = splat(0.0F);
  for (int64_t j = 0; j < row.visible; j += kLanes) {
    const int64_t n = row.visible - j < kLanes ? row.visible - j : kLanes;
    const Vf s = load_first(row.scores + j, n) - splat(maximum);
    const Vf e = select(lanes_below(n), exp(s), splat(0.0F));
    store_first(row.scores + j, e, n);
    sums = sums + e;
  }
  const Vf inverse = splat(1.0F / sum_lanes(sums));
  for (int64_t j = 0; j < row.visible; j += kLanes) {
    const int64_t n = row.visible - j < kLanes ? row.visible - j : kLanes;
    store_first(row.scores + j, load_first(row.scores + j, n) * inverse, n);
  }
  for (int64_t j = row.visible; j < row.keys; ++j) row.scores[j] = 0;
}

void pack_transposed(const float* k, int64_t k_stride, int64_t rows, int64_t depth, int64_t width, float* out) {
  int64_t j = 0;
  for (; j + kLanes <= rows && j + kLanes <= width; j += kLanes) {
    int64_t d = 0;
    for (; d + kLanes <= depth; d += kLanes)
      transpose_block(k + j * k_stride + d, k_stride, out + d * width + j, width);
    for (; d < depth; ++d) {
      for (int64_t i = j; i < j + kLanes; ++i) out[d * width + i] = k[i * k_stride + d];
    }
  }
  for (; j < width; ++j) {
    for (int64_t d = 0; d < depth; ++d) out[d * width + j] = j < rows ? k[j * k_stride + d] : 0;
  }
}

}  // namespace flywheel::kernels::FW_ISA
