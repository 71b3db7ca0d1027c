// SPDX-License-Identifier: Apache-2.0
// Vectors of floats for AVX-512, the same interface as vec_avx2.h and vec_portable.h. Only sources compiled with that
// ISA's flags include it, and everything lives in the ISA's namespace: otherwise the linker might keep an AVX-512 copy
// of a function that other code shares. For the same reason such sources use no inline function of the standard
// library.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FW_ISA avx512
#define FW_INLINE [[gnu::always_inline]] static inline
#define FW_LAMBDA __attribute__((always_inline))

namespace flywheel::kernels::avx512 {

inline constexpr int kLanes = 16;
inline constexpr int kVectorRegisters = 32;
inline constexpr bool kHasFma = true;

struct Vf {  // 16 floats
  __m512 v;
};
struct Vi {  // 16 int32
  __m512i v;
};
struct Vm {  // a truth value a lane
  __mmask16 v;
};

// The first n lanes, n in [0, 16].
FW_INLINE __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(n)));
}

FW_INLINE Vf splat(float x) { return {_mm512_set1_ps(x)}; }
FW_INLINE Vf load(const float* p) { return {_mm512_loadu_ps(p)}; }
FW_INLINE void store(float* p, Vf x) { _mm512_storeu_ps(p, x.v); }
// Lanes from n on read as 0 and are not written; nothing beyond p + n is touched.
FW_INLINE Vf load_first(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
FW_INLINE void store_first(float* p, Vf x, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), x.v); }
FW_INLINE Vm lanes_below(int64_t n) { return {first_lanes(n)}; }

FW_INLINE Vf operator+(Vf a, Vf b) { return {_mm512_add_ps(a.v, b.v)}; }
FW_INLINE Vf operator-(Vf a, Vf b) { return {_mm512_sub_ps(a.v, b.v)}; }
FW_INLINE Vf operator*(Vf a, Vf b) { return {_mm512_mul_ps(a.v, b.v)}; }
FW_INLINE Vf operator/(Vf a, Vf b) { return {_mm512_div_ps(a.v, b.v)}; }
FW_INLINE Vf fma(Vf a, Vf b, Vf c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
FW_INLINE Vf fnma(Vf a, Vf b, Vf c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
// b when either is NaN: with a constant first, NaN passes.
FW_INLINE Vf min(Vf a, Vf b) { return {_mm512_min_ps(a.v, b.v)}; }
FW_INLINE Vf max(Vf a, Vf b) { return {_mm512_max_ps(a.v, b.v)}; }
FW_INLINE Vf sqrt(Vf a) { return {_mm512_sqrt_ps(a.v)}; }

FW_INLINE Vf round_even(Vf a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
FW_INLINE Vf floor(Vf a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
FW_INLINE Vf ceil(Vf a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)}; }

FW_INLINE Vm operator<(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
FW_INLINE Vm operator<=(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
FW_INLINE Vm operator==(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
FW_INLINE Vm operator!=(Vf a, Vf b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
FW_INLINE Vm is_nan(Vf a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
FW_INLINE Vm operator&(Vm a, Vm b) { return {static_cast<__mmask16>(a.v & b.v)}; }
FW_INLINE Vm operator|(Vm a, Vm b) { return {static_cast<__mmask16>(a.v | b.v)}; }
FW_INLINE Vm operator^(Vm a, Vm b) { return {static_cast<__mmask16>(a.v ^ b.v)}; }
FW_INLINE Vm operator~(Vm a) { return {static_cast<__mmask16>(~a.v)}; }
FW_INLINE bool any(Vm a) { return a.v != 0; }
FW_INLINE Vf select(Vm m, Vf a, Vf b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }  // m ? a : b

FW_INLINE Vi splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
FW_INLINE Vi as_int(Vf a) { return {_mm512_castps_si512(a.v)}; }
FW_INLINE Vf as_float(Vi a) { return {_mm512_castsi512_ps(a.v)}; }
FW_INLINE Vi to_int(Vf a) { return {_mm512_cvttps_epi32(a.v)}; }  // truncates; the value must fit
FW_INLINE Vf to_float(Vi a) { return {_mm512_cvtepi32_ps(a.v)}; }
FW_INLINE Vi operator+(Vi a, Vi b) { return {_mm512_add_epi32(a.v, b.v)}; }
FW_INLINE Vi operator-(Vi a, Vi b) { return {_mm512_sub_epi32(a.v, b.v)}; }
FW_INLINE Vi operator&(Vi a, Vi b) { return {_mm512_and_si512(a.v, b.v)}; }
FW_INLINE Vi operator|(Vi a, Vi b) { return {_mm512_or_si512(a.v, b.v)}; }
FW_INLINE Vi operator^(Vi a, Vi b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
FW_INLINE Vi shift_left(Vi a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
FW_INLINE Vi shift_right(Vi a) {  // copies of the sign come in
  return {_mm512_srai_epi32(a.v, kBits)};
}
FW_INLINE Vm operator==(Vi a, Vi b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }

// x * 2^n for an integral n in [-300, 300], gradual underflow included.
FW_INLINE Vf times_power_of_two(Vf x, Vf n) { return {_mm512_scalef_ps(x.v, n.v)}; }

FW_INLINE void halves_from_floats(const float* in, uint16_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtps_ph(_mm512_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}
FW_INLINE Vf load_halves(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// 16 bytes as floats.
FW_INLINE Vf load_bytes(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

// Over the lanes, in an order that is fixed.
FW_INLINE float sum_lanes(Vf a) { return _mm512_reduce_add_ps(a.v); }
FW_INLINE float max_lanes(Vf a) { return _mm512_reduce_max_ps(a.v); }

// out[c * out_stride + r] = in[r * in_stride + c] for r, c in [0, 16).
FW_INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(in + i * in_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
    b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
    b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_ps(out + i * out_stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_ps(out + (i + 4) * out_stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
    _mm512_storeu_ps(out + (i + 8) * out_stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
    _mm512_storeu_ps(out + (i + 12) * out_stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd));
  }
}

}  // namespace flywheel::kernels::avx512
