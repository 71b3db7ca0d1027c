// SPDX-License-Identifier: Apache-2.0
// Vectors of floats for any CPU, from the compiler's vector extensions (SSE2 on a plain x86-64, NEON on aarch64); see
// vec_avx512.h for the interface and the rules of ISA sources.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define FW_ISA portable
#define FW_INLINE [[gnu::always_inline]] static inline
#define FW_LAMBDA __attribute__((always_inline))

namespace flywheel::kernels::portable {

inline constexpr int kLanes = 4;
#if defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
inline constexpr bool kHasFma = true;
#else
inline constexpr int kVectorRegisters = 16;
inline constexpr bool kHasFma = false;
#endif

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
using UInt4 = uint32_t __attribute__((vector_size(16)));

struct Vf {  // 4 floats
  Float4 v;
};
struct Vi {  // 4 int32
  Int4 v;
};
struct Vm {  // all bits of a lane, or none
  Int4 v;
};

FW_INLINE Vf splat(float x) { return {Float4{x, x, x, x}}; }
FW_INLINE Vf load(const float* p) {
  Vf x;
  memcpy(&x.v, p, sizeof x.v);
  return x;
}
FW_INLINE void store(float* p, Vf x) { memcpy(p, &x.v, sizeof x.v); }
FW_INLINE Vf load_first(const float* p, int64_t n) {
  Float4 x = {};
  for (int i = 0; i < 4; ++i) {
    if (i < n) x[i] = p[i];
  }
  return {x};
}
FW_INLINE void store_first(float* p, Vf x, int64_t n) {
  for (int i = 0; i < 4; ++i) {
    if (i < n) p[i] = x.v[i];
  }
}
FW_INLINE Vm lanes_below(int64_t n) {
  const int32_t m = static_cast<int32_t>(n);
  return {Int4{0, 1, 2, 3} < Int4{m, m, m, m}};
}

FW_INLINE Vf operator+(Vf a, Vf b) { return {a.v + b.v}; }
FW_INLINE Vf operator-(Vf a, Vf b) { return {a.v - b.v}; }
FW_INLINE Vf operator*(Vf a, Vf b) { return {a.v * b.v}; }
FW_INLINE Vf operator/(Vf a, Vf b) { return {a.v / b.v}; }
#if defined(__aarch64__)
FW_INLINE Vf fma(Vf a, Vf b, Vf c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
FW_INLINE Vf fnma(Vf a, Vf b, Vf c) { return {vfmsq_f32(c.v, a.v, b.v)}; }
FW_INLINE Vf sqrt(Vf a) { return {vsqrtq_f32(a.v)}; }
#else
// Two roundings: without the instruction a fused result costs a library call a lane.
FW_INLINE Vf fma(Vf a, Vf b, Vf c) { return {a.v * b.v + c.v}; }
FW_INLINE Vf fnma(Vf a, Vf b, Vf c) { return {c.v - a.v * b.v}; }
FW_INLINE Vf sqrt(Vf a) {
  return {Float4{__builtin_sqrtf(a.v[0]), __builtin_sqrtf(a.v[1]), __builtin_sqrtf(a.v[2]), __builtin_sqrtf(a.v[3])}};
}
#endif
FW_INLINE Vf min(Vf a, Vf b) { return {a.v < b.v ? a.v : b.v}; }
FW_INLINE Vf max(Vf a, Vf b) { return {a.v > b.v ? a.v : b.v}; }

FW_INLINE Vm operator<(Vf a, Vf b) { return {a.v < b.v}; }
FW_INLINE Vm operator<=(Vf a, Vf b) { return {a.v <= b.v}; }
FW_INLINE Vm operator==(Vf a, Vf b) { return {a.v == b.v}; }
FW_INLINE Vm operator!=(Vf a, Vf b) { return {a.v != b.v}; }
FW_INLINE Vm is_nan(Vf a) { return {a.v != a.v}; }
FW_INLINE Vm operator&(Vm a, Vm b) { return {a.v & b.v}; }
FW_INLINE Vm operator|(Vm a, Vm b) { return {a.v | b.v}; }
FW_INLINE Vm operator^(Vm a, Vm b) { return {a.v ^ b.v}; }
FW_INLINE Vm operator~(Vm a) { return {~a.v}; }
FW_INLINE bool any(Vm a) { return (a.v[0] | a.v[1] | a.v[2] | a.v[3]) != 0; }
FW_INLINE Vf select(Vm m, Vf a, Vf b) { return {m.v ? a.v : b.v}; }

FW_INLINE Vi splat_int(int32_t x) { return {Int4{x, x, x, x}}; }
FW_INLINE Vi as_int(Vf a) { return {reinterpret_cast<Int4>(a.v)}; }
FW_INLINE Vf as_float(Vi a) { return {reinterpret_cast<Float4>(a.v)}; }
FW_INLINE Vi to_int(Vf a) { return {__builtin_convertvector(a.v, Int4)}; }
FW_INLINE Vf to_float(Vi a) { return {__builtin_convertvector(a.v, Float4)}; }
// Unsigned inside, since these wrap.
FW_INLINE Vi operator+(Vi a, Vi b) {
  return {reinterpret_cast<Int4>(reinterpret_cast<UInt4>(a.v) + reinterpret_cast<UInt4>(b.v))};
}
FW_INLINE Vi operator-(Vi a, Vi b) {
  return {reinterpret_cast<Int4>(reinterpret_cast<UInt4>(a.v) - reinterpret_cast<UInt4>(b.v))};
}
FW_INLINE Vi operator&(Vi a, Vi b) { return {a.v & b.v}; }
FW_INLINE Vi operator|(Vi a, Vi b) { return {a.v | b.v}; }
FW_INLINE Vi operator^(Vi a, Vi b) { return {a.v ^ b.v}; }
template <int kBits>
FW_INLINE Vi shift_left(Vi a) {
  return {a.v << kBits};
}
template <int kBits>
FW_INLINE Vi shift_right(Vi a) {
  return {a.v >> kBits};
}
FW_INLINE Vm operator==(Vi a, Vi b) { return {a.v == b.v}; }

// Adding 2^23 to a magnitude below it leaves no bits for a fraction, so that it rounds to even; larger values are
// integral already. The sign is put back so that -0 stays -0.
FW_INLINE Vf round_even(Vf a) {
  const Vi sign = as_int(a) & splat_int(INT32_MIN);
  const Vf magnitude = as_float(as_int(a) ^ sign), magic = splat(8388608.0F);
  const Vf rounded = as_float(as_int((magnitude + magic) - magic) | sign);
  return select(magnitude < magic, rounded, a);
}
FW_INLINE Vf floor(Vf a) {
  const Vf rounded = round_even(a), below = rounded - splat(1.0F);
  return select(a < rounded, below, rounded);
}
FW_INLINE Vf ceil(Vf a) {
  const Vi sign = as_int(a) & splat_int(INT32_MIN);
  const Vf rounded = round_even(a), above = as_float(as_int(rounded + splat(1.0F)) | sign);
  return select(rounded < a, above, rounded);
}

FW_INLINE Vf times_power_of_two(Vf x, Vf n) {
  const Vi power = to_int(n), half = shift_right<1>(power), rest = power - half, bias = splat_int(127);
  return x * as_float(shift_left<23>(half + bias)) * as_float(shift_left<23>(rest + bias));
}

FW_INLINE float float_from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  float out;
  if (exponent == 0) {
    out = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -out : out;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000U : (exponent + 112) << 23) | fraction << 13;
  memcpy(&out, &bits, sizeof out);
  return out;
}
FW_INLINE uint16_t half_from_float(float x) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves the fraction, rounded, in the low bits
    float small;
    memcpy(&small, &magnitude, sizeof small);
    small += 0.5F;
    memcpy(&bits, &small, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
FW_INLINE void halves_from_floats(const float* in, uint16_t* out) {
  for (int i = 0; i < 4; ++i) out[i] = half_from_float(in[i]);
}
FW_INLINE Vf load_halves(const uint16_t* p) {
  return {Float4{float_from_half(p[0]), float_from_half(p[1]), float_from_half(p[2]), float_from_half(p[3])}};
}
FW_INLINE Vf load_bytes(const uint8_t* p) {
  return {
      Float4{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])}};
}

FW_INLINE float sum_lanes(Vf a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
FW_INLINE float max_lanes(Vf a) {
  const float x = a.v[0] > a.v[2] ? a.v[0] : a.v[2], y = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return x > y ? x : y;
}

// out[c * out_stride + r] = in[r * in_stride + c] for r, c in [0, 4).
FW_INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  const Float4 a = load(in).v, b = load(in + in_stride).v, c = load(in + 2 * in_stride).v,
               d = load(in + 3 * in_stride).v;
  const Float4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Float4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(out, {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5)});
  store(out + out_stride, {__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7)});
  store(out + 2 * out_stride, {__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5)});
  store(out + 3 * out_stride, {__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)});
}

}  // namespace flywheel::kernels::portable
