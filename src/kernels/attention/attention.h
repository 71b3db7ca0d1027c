// SPDX-License-Identifier: Apache-2.0
// Family attention: softmax(scale * Q K^T + mask) V, one head after the other, without the score matrix in memory.
// Operands: inputs[0] Q [B,H,Sq,D], inputs[1] K [B,H,Sk,D], inputs[2] V [B,H,Sk,Dv]: strided views, innermost stride 1
// (splitting heads costs nothing); inputs[3] mask when mask_kind != 0, broadcasting to [B,H,Sq,Sk], any strides.
// outputs[0] Y [B,H,Sq,Dv], innermost stride 1, other strides free (merging heads costs nothing). f32.
// ints: [mask_kind, causal, masked_rows_to_zero]; floats: [scale].
//   mask_kind 0: none; 1: f32, added to the scaled scores; 2: bool, false is -infinity.
//   causal: query i sees keys 0..i.
//   masked_rows_to_zero: a row whose scores are all -infinity gives 0 (1) or NaN (0, what Softmax alone gives).
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class MaskKind : int64_t { kNone = 0, kAdd = 1, kKeep = 2 };

struct AttentionParams {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  MaskKind mask = MaskKind::kNone;
  bool causal = false, masked_rows_to_zero = false;
  float scale = 1;
  static Result<AttentionParams> from(const Problem& problem);
};

// The mask's strides in elements over [B,H,Sq,Sk]; 0 where it broadcasts.
struct MaskStrides {
  int64_t batch, head, query, key;
};
MaskStrides mask_strides(const Problem& problem);

}  // namespace flywheel::kernels
