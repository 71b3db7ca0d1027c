// SPDX-License-Identifier: Apache-2.0
// What attention_f32.cc calls in the sources of each ISA: turning rows of raw scores into probabilities, and packing K.
// Pure functions over memory; any thread.
#pragma once

#include <cstdint>

namespace flywheel::kernels {

// One row of scores: s[j] = exp(scale * s[j] + mask - max) / sum for j < visible, 0 for visible <= j < keys.
struct ScoreRow {
  float* scores;
  int64_t keys, visible;  // visible < keys only for causal attention
  float scale;
  const float* add;     // added after scaling, or null
  int64_t add_stride;   // elements from key to key; 0 broadcasts
  const uint8_t* keep;  // 0 hides a key, or null
  int64_t keep_stride;
  bool masked_rows_to_zero;
};

#define FW_DECLARE_ATTENTION_ROWS(isa)                                                                            \
  namespace isa {                                                                                                 \
  void score_row_to_probabilities(const ScoreRow& row);                                                           \
  /* out[d * width + j] = k[j * k_stride + d] for j < width (0 from `rows` on), d < depth. */                     \
  void pack_transposed(const float* k, int64_t k_stride, int64_t rows, int64_t depth, int64_t width, float* out); \
  }
FW_DECLARE_ATTENTION_ROWS(avx512)
FW_DECLARE_ATTENTION_ROWS(avx2)
FW_DECLARE_ATTENTION_ROWS(portable)
#undef FW_DECLARE_ATTENTION_ROWS

}  // namespace flywheel::kernels
