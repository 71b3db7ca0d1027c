// SPDX-License-Identifier: Apache-2.0
// The loops of reduce_isa.h; included by reduce_<isa>.cc alone.
#pragma once

#include "kernels/reduce/reduce_isa.h"
#include "kernels/simd/vector_math.h"

namespace flywheel::kernels::FW_ISA {

// Sums of long columns go by blocks of this many terms, so that the error grows with the number of blocks instead of
// terms.
inline constexpr int64_t kSumBlock = 128;

template <Accumulate kHow>
FW_INLINE Vf identity() {
  if constexpr (kHow == Accumulate::kProduct) return splat(1.0F);
  if constexpr (kHow == Accumulate::kMax) return splat(-INFINITY);
  if constexpr (kHow == Accumulate::kMin) return splat(INFINITY);
  return splat(0.0F);
}

template <Accumulate kHow>
FW_INLINE Vf term(Vf x, Vf shift) {
  if constexpr (kHow == Accumulate::kAbsSum) return abs(x);
  if constexpr (kHow == Accumulate::kSquareSum) return x * x;
  if constexpr (kHow == Accumulate::kExpSum) return exp(x - shift);
  return x;
}

template <Accumulate kHow>
FW_INLINE Vf combine(Vf a, Vf b) {
  if constexpr (kHow == Accumulate::kProduct) return a * b;
  if constexpr (kHow == Accumulate::kMax) return max_nan(a, b);
  if constexpr (kHow == Accumulate::kMin) return min_nan(a, b);
  return a + b;
}

template <Accumulate kHow>
FW_INLINE float fold_lanes(Vf a) {
  if constexpr (kHow == Accumulate::kProduct) {
    float lanes[kLanes];
    store(lanes, a);
    float product = lanes[0];
    for (int i = 1; i < kLanes; ++i) product *= lanes[i];
    return product;
  }
  if constexpr (kHow == Accumulate::kMax) return any(is_nan(a)) ? NAN : max_lanes(a);
  if constexpr (kHow == Accumulate::kMin) return any(is_nan(a)) ? NAN : -max_lanes(negate(a));
  return sum_lanes(a);
}

// Calls body(x) for every point of the outer reduced dims, in order.
template <class Body>
FW_INLINE void for_each_outer(const ReducedDims& dims, const float* x, Body body) {
  int64_t index[8] = {};
  const int outer = dims.rank - 1;
  for (;;) {
    body(x);
    int d = outer - 1;
    for (; d >= 0; --d) {
      x += dims.strides[d];
      if (++index[d] < dims.extents[d]) break;
      x -= dims.strides[d] * dims.extents[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

template <Accumulate kHow>
static float row_of(const ReducedDims& dims, const float* x, float shift_value) {
  const Vf shift = splat(shift_value);
  Vf a0 = identity<kHow>(), a1 = a0, a2 = a0, a3 = a0;
  const int64_t n = dims.extents[dims.rank - 1];
  auto at = [=](const float* p) FW_LAMBDA { return term<kHow>(load(p), shift); };
  for_each_outer(dims, x, [&](const float* p) FW_LAMBDA {
    int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      a0 = combine<kHow>(a0, at(p + i));
      a1 = combine<kHow>(a1, at(p + i + kLanes));
      a2 = combine<kHow>(a2, at(p + i + 2 * kLanes));
      a3 = combine<kHow>(a3, at(p + i + 3 * kLanes));
    }
    for (; i + kLanes <= n; i += kLanes) a0 = combine<kHow>(a0, at(p + i));
    if (i < n) {
      const Vf rest = term<kHow>(load_first(p + i, n - i), shift);
      a1 = combine<kHow>(a1, select(lanes_below(n - i), rest, identity<kHow>()));
    }
  });
  return fold_lanes<kHow>(combine<kHow>(combine<kHow>(a0, a1), combine<kHow>(a2, a3)));
}

template <Accumulate kHow, int kVectors, bool kMasked>
static inline void columns_of_vectors(const ReducedDims& dims, const float* x, int64_t rest, const float* shifts,
                                      float* out) {
  Vf total[kVectors], shift[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    total[j] = identity<kHow>();
    shift[j] = splat(0.0F);
    if constexpr (kHow == Accumulate::kExpSum) {
      shift[j] = kMasked ? load_first(shifts, rest) : load(shifts + j * kLanes);
    }
  }
  const int64_t n = dims.extents[dims.rank - 1], stride = dims.strides[dims.rank - 1];
  for_each_outer(dims, x, [&](const float* p) FW_LAMBDA {
    for (int64_t l0 = 0; l0 < n; l0 += kSumBlock) {
      const int64_t l1 = l0 + kSumBlock < n ? l0 + kSumBlock : n;
      Vf part[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) part[j] = identity<kHow>();
      for (int64_t l = l0; l < l1; ++l) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          const float* at = p + l * stride + j * kLanes;
          part[j] = combine<kHow>(part[j], term<kHow>(kMasked ? load_first(at, rest) : load(at), shift[j]));
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) total[j] = combine<kHow>(total[j], part[j]);
    }
  });
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    if constexpr (kMasked) {
      store_first(out, total[j], rest);
    } else {
      store(out + j * kLanes, total[j]);
    }
  }
}

template <Accumulate kHow>
static void columns_of(const ReducedDims& dims, const float* x, int64_t columns, const float* shifts, float* out) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    columns_of_vectors<kHow, 4, false>(dims, x + c, kLanes, shifts + c, out + c);
  }
  for (; c + kLanes <= columns; c += kLanes)
    columns_of_vectors<kHow, 1, false>(dims, x + c, kLanes, shifts + c, out + c);
  if (c < columns) columns_of_vectors<kHow, 1, true>(dims, x + c, columns - c, shifts + c, out + c);
}

float reduce_row(Accumulate how, const ReducedDims& dims, const float* x, float shift) {
  switch (how) {
    case Accumulate::kSum: return row_of<Accumulate::kSum>(dims, x, shift);
    case Accumulate::kAbsSum: return row_of<Accumulate::kAbsSum>(dims, x, shift);
    case Accumulate::kSquareSum: return row_of<Accumulate::kSquareSum>(dims, x, shift);
    case Accumulate::kExpSum: return row_of<Accumulate::kExpSum>(dims, x, shift);
    case Accumulate::kProduct: return row_of<Accumulate::kProduct>(dims, x, shift);
    case Accumulate::kMax: return row_of<Accumulate::kMax>(dims, x, shift);
    default: return row_of<Accumulate::kMin>(dims, x, shift);
  }
}

void reduce_columns(Accumulate how, const ReducedDims& dims, const float* x, int64_t columns, const float* shifts,
                    float* out) {
  switch (how) {
    case Accumulate::kSum: return columns_of<Accumulate::kSum>(dims, x, columns, shifts, out);
    case Accumulate::kAbsSum: return columns_of<Accumulate::kAbsSum>(dims, x, columns, shifts, out);
    case Accumulate::kSquareSum: return columns_of<Accumulate::kSquareSum>(dims, x, columns, shifts, out);
    case Accumulate::kExpSum: return columns_of<Accumulate::kExpSum>(dims, x, columns, shifts, out);
    case Accumulate::kProduct: return columns_of<Accumulate::kProduct>(dims, x, columns, shifts, out);
    case Accumulate::kMax: return columns_of<Accumulate::kMax>(dims, x, columns, shifts, out);
    case Accumulate::kMin: return columns_of<Accumulate::kMin>(dims, x, columns, shifts, out);
  }
}

FW_INLINE Vi select_int(Vm m, Vi a, Vi b) { return as_int(select(m, as_float(a), as_float(b))); }

// The larger one, and its index, of what was found and x; equal values replace with kLast.
template <bool kLast>
FW_INLINE void keep_larger(Vf x, Vi index, Vf& best, Vi& best_index) {
  const Vm better = kLast ? best <= x : best < x;
  best = select(better, x, best);
  best_index = select_int(better, index, best_index);
}

template <bool kLast>
static int64_t arg_row_of(const float* x, int64_t n, Vi flip) {
  Vf best = splat(-INFINITY);
  Vi best_index = splat_int(0);
  int32_t first[kLanes];
  for (int i = 0; i < kLanes; ++i) first[i] = i;
  float indices[kLanes];
  memcpy(indices, first, sizeof first);
  Vi index = as_int(load(indices));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes, index = index + splat_int(kLanes)) {
    keep_larger<kLast>(as_float(as_int(load(x + i)) ^ flip), index, best, best_index);
  }
  if (i < n) {
    const Vf rest = as_float(as_int(load_first(x + i, n - i)) ^ flip);
    keep_larger<kLast>(select(lanes_below(n - i), rest, splat(NAN)), index, best, best_index);
  }
  // Among the lanes that hold the largest value, the one with the first (last) index.
  const int32_t none = kLast ? -1 : INT32_MAX;
  const Vi candidates = select_int(best == splat(max_lanes(best)), best_index, splat_int(none));
  store(indices, as_float(candidates));
  memcpy(first, indices, sizeof first);
  int32_t found = none;
  for (int j = 0; j < kLanes; ++j) {
    if constexpr (kLast) {
      found = first[j] > found ? first[j] : found;
    } else {
      found = first[j] < found ? first[j] : found;
    }
  }
  return found;
}

int64_t arg_row(const float* x, int64_t n, bool negate, bool last) {
  const Vi flip = splat_int(negate ? INT32_MIN : 0);
  return last ? arg_row_of<true>(x, n, flip) : arg_row_of<false>(x, n, flip);
}

template <bool kLast>
static void arg_columns_of(const float* x, int64_t n, int64_t stride, int64_t columns, Vi flip, int64_t* out) {
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t rest = columns - c < kLanes ? columns - c : kLanes;
    Vf best = splat(-INFINITY);
    Vi best_index = splat_int(0);
    for (int64_t l = 0; l < n; ++l) {
      const Vf v = as_float(as_int(load_first(x + c + l * stride, rest)) ^ flip);
      keep_larger<kLast>(v, splat_int(static_cast<int32_t>(l)), best, best_index);
    }
    float bits[kLanes];
    int32_t indices[kLanes];
    store(bits, as_float(best_index));
    memcpy(indices, bits, sizeof indices);
    for (int64_t j = 0; j < rest; ++j) out[c + j] = indices[j];
  }
}

void arg_columns(const float* x, int64_t n, int64_t stride, int64_t columns, bool negate, bool last, int64_t* out) {
  const Vi flip = splat_int(negate ? INT32_MIN : 0);
  if (last) {
    arg_columns_of<true>(x, n, stride, columns, flip, out);
  } else {
    arg_columns_of<false>(x, n, stride, columns, flip, out);
  }
}

}  // namespace flywheel::kernels::FW_ISA
