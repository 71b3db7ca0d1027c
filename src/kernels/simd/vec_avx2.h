// SPDX-License-Identifier: Apache-2.0
// Vectors of floats for AVX2 with FMA and F16C; see vec_avx512.h for the interface and the rules of ISA sources.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FW_ISA avx2
#define FW_INLINE [[gnu::always_inline]] static inline
#define FW_LAMBDA __attribute__((always_inline))

namespace flywheel::kernels::avx2 {

inline constexpr int kLanes = 8;
inline constexpr int kVectorRegisters = 16;
inline constexpr bool kHasFma = true;

struct Vf {  // 8 floats
  __m256 v;
};
struct Vi {  // 8 int32
  __m256i v;
};
struct Vm {  // all bits of a lane, or none
  __m256 v;
};

FW_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

FW_INLINE Vf splat(float x) { return {_mm256_set1_ps(x)}; }
FW_INLINE Vf load(const float* p) { return {_mm256_loadu_ps(p)}; }
FW_INLINE void store(float* p, Vf x) { _mm256_storeu_ps(p, x.v); }
FW_INLINE Vf load_first(const float* p, int64_t n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
FW_INLINE void store_first(float* p, Vf x, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), x.v); }
FW_INLINE Vm lanes_below(int64_t n) { return {_mm256_castsi256_ps(first_lanes(n))}; }

FW_INLINE Vf operator+(Vf a, Vf b) { return {_mm256_add_ps(a.v, b.v)}; }
FW_INLINE Vf operator-(Vf a, Vf b) { return {_mm256_sub_ps(a.v, b.v)}; }
FW_INLINE Vf operator*(Vf a, Vf b) { return {_mm256_mul_ps(a.v, b.v)}; }
FW_INLINE Vf operator/(Vf a, Vf b) { return {_mm256_div_ps(a.v, b.v)}; }
FW_INLINE Vf fma(Vf a, Vf b, Vf c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
FW_INLINE Vf fnma(Vf a, Vf b, Vf c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
FW_INLINE Vf min(Vf a, Vf b) { return {_mm256_min_ps(a.v, b.v)}; }
FW_INLINE Vf max(Vf a, Vf b) { return {_mm256_max_ps(a.v, b.v)}; }
FW_INLINE Vf sqrt(Vf a) { return {_mm256_sqrt_ps(a.v)}; }

FW_INLINE Vf round_even(Vf a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
FW_INLINE Vf floor(Vf a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
FW_INLINE Vf ceil(Vf a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)}; }

FW_INLINE Vm operator<(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
FW_INLINE Vm operator<=(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
FW_INLINE Vm operator==(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
FW_INLINE Vm operator!=(Vf a, Vf b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)}; }
FW_INLINE Vm is_nan(Vf a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
FW_INLINE Vm operator&(Vm a, Vm b) { return {_mm256_and_ps(a.v, b.v)}; }
FW_INLINE Vm operator|(Vm a, Vm b) { return {_mm256_or_ps(a.v, b.v)}; }
FW_INLINE Vm operator^(Vm a, Vm b) { return {_mm256_xor_ps(a.v, b.v)}; }
FW_INLINE Vm operator~(Vm a) { return {_mm256_xor_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))}; }
FW_INLINE bool any(Vm a) { return _mm256_movemask_ps(a.v) != 0; }
FW_INLINE Vf select(Vm m, Vf a, Vf b) { return {_mm256_blendv_ps(b.v, a.v, m.v)}; }

FW_INLINE Vi splat_int(int32_t x) { return {_mm256_set1_epi32(x)}; }
FW_INLINE Vi as_int(Vf a) { return {_mm256_castps_si256(a.v)}; }
FW_INLINE Vf as_float(Vi a) { return {_mm256_castsi256_ps(a.v)}; }
FW_INLINE Vi to_int(Vf a) { return {_mm256_cvttps_epi32(a.v)}; }
FW_INLINE Vf to_float(Vi a) { return {_mm256_cvtepi32_ps(a.v)}; }
FW_INLINE Vi operator+(Vi a, Vi b) { return {_mm256_add_epi32(a.v, b.v)}; }
FW_INLINE Vi operator-(Vi a, Vi b) { return {_mm256_sub_epi32(a.v, b.v)}; }
FW_INLINE Vi operator&(Vi a, Vi b) { return {_mm256_and_si256(a.v, b.v)}; }
FW_INLINE Vi operator|(Vi a, Vi b) { return {_mm256_or_si256(a.v, b.v)}; }
FW_INLINE Vi operator^(Vi a, Vi b) { return {_mm256_xor_si256(a.v, b.v)}; }
template <int kBits>
FW_INLINE Vi shift_left(Vi a) {
  return {_mm256_slli_epi32(a.v, kBits)};
}
template <int kBits>
FW_INLINE Vi shift_right(Vi a) {
  return {_mm256_srai_epi32(a.v, kBits)};
}
FW_INLINE Vm operator==(Vi a, Vi b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))}; }

// In two steps, since the exponent field of one power of two cannot reach results that underflow gradually.
FW_INLINE Vf times_power_of_two(Vf x, Vf n) {
  const Vi power = to_int(n), half = shift_right<1>(power), rest = power - half, bias = splat_int(127);
  return x * as_float(shift_left<23>(half + bias)) * as_float(shift_left<23>(rest + bias));
}

FW_INLINE void halves_from_floats(const float* in, uint16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}
FW_INLINE Vf load_halves(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
FW_INLINE Vf load_bytes(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}

FW_INLINE float sum_lanes(Vf a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
FW_INLINE float max_lanes(Vf a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

// out[c * out_stride + r] = in[r * in_stride + c] for r, c in [0, 8).
FW_INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(in + i * in_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

}  // namespace flywheel::kernels::avx2
