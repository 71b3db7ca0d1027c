// SPDX-License-Identifier: Apache-2.0
// The loops of recurrent_isa.h; included by recurrent_<isa>.cc alone.
#pragma once

#include "kernels/recurrent/recurrent_isa.h"
#include "kernels/simd/vector_math.h"

namespace flywheel::kernels::FW_ISA {

static constexpr int kVectors = static_cast<int>(kRecurrentBlock / kLanes);

// One block of units. What of a row's sums does not fit into registers makes another pass over the weights.
template <int kGates, int kRows, int kUsed>
static inline void accumulate_part(const float* packed, int64_t hidden, const float* const* h, float* const* out,
                                   int64_t stride, int first_vector) {
  Vf sums[kRows][kGates][kUsed];
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGates; ++g)
      for (int v = 0; v < kUsed; ++v) sums[r][g][v] = load(out[r] + g * stride + (first_vector + v) * kLanes);
  for (int64_t k = 0; k < hidden; ++k) {
    const float* weights = packed + k * kGates * kRecurrentBlock + first_vector * kLanes;
    Vf row[kRows];
    for (int r = 0; r < kRows; ++r) row[r] = splat(h[r][k]);
    for (int g = 0; g < kGates; ++g) {
      for (int v = 0; v < kUsed; ++v) {
        const Vf w = load(weights + g * kRecurrentBlock + v * kLanes);
        for (int r = 0; r < kRows; ++r) sums[r][g][v] = fma(w, row[r], sums[r][g][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int g = 0; g < kGates; ++g)
      for (int v = 0; v < kUsed; ++v) store(out[r] + g * stride + (first_vector + v) * kLanes, sums[r][g][v]);
}

template <int kGates, int kRows>
static inline void accumulate_blocks(const float* packed, int64_t hidden, int64_t first, int64_t last,
                                     const float* const* h, float* const* out, int64_t stride) {
  // At most 16 sums at a time with AVX-512's registers, 8 with others'.
  constexpr int kSums = kLanes == 16 ? 16 : 8;
  constexpr int kFitting = kSums / (kGates * kRows);
  constexpr int kUsed = kFitting < 1 ? 1 : kFitting < kVectors ? kFitting : kVectors;
  for (int64_t block = first; block < last; ++block) {
    float* at[kRows];
    for (int r = 0; r < kRows; ++r) at[r] = out[r] + block * kRecurrentBlock;
    const float* weights = packed + block * hidden * kGates * kRecurrentBlock;
    int v = 0;
    for (; v + kUsed <= kVectors; v += kUsed) accumulate_part<kGates, kRows, kUsed>(weights, hidden, h, at, stride, v);
    for (; v < kVectors; ++v) accumulate_part<kGates, kRows, 1>(weights, hidden, h, at, stride, v);
  }
}

template <int kRows>
static inline void accumulate_rows(const float* packed, int gates, int64_t hidden, int64_t first, int64_t last,
                                   const float* const* h, float* const* out, int64_t stride) {
  switch (gates) {
    case 1: return accumulate_blocks<1, kRows>(packed, hidden, first, last, h, out, stride);
    case 2: return accumulate_blocks<2, kRows>(packed, hidden, first, last, h, out, stride);
    case 3: return accumulate_blocks<3, kRows>(packed, hidden, first, last, h, out, stride);
    default: return accumulate_blocks<4, kRows>(packed, hidden, first, last, h, out, stride);
  }
}

static void accumulate(const float* packed, int gates, int64_t hidden, int64_t first, int64_t last,
                       const float* const* h, float* const* out, int64_t stride, int rows) {
  if (rows == kRecurrentRows)
    return accumulate_rows<kRecurrentRows>(packed, gates, hidden, first, last, h, out, stride);
  accumulate_rows<1>(packed, gates, hidden, first, last, h, out, stride);
}

static void sigmoid_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(x + i, sigmoid(load(x + i)));
}

static void tanh_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(x + i, tanh(load(x + i)));
}

extern const RecurrentLoops recurrent_loops{accumulate, sigmoid_all, tanh_all};

}  // namespace flywheel::kernels::FW_ISA
