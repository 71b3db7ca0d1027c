// SPDX-License-Identifier: Apache-2.0
// One element of any type as another: what reference kernels and slow paths use. Float to integer truncates toward zero
// and saturates (NaN gives the lowest value, as conversions in vectors do); to bool is != 0. Stateless; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "flywheel/dtype.h"

namespace flywheel::kernels {

inline float float_from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent == 31 ? 0x7f800000U : (exponent + 112) << 23) | fraction << 13);
}

inline uint16_t f16_from_float(float value) {  // to nearest, ties to even
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves the fraction, rounded, in the low bits
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

inline float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t bf16_from_float(float value) {  // to nearest, ties to even
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class To, class From>
To cast_element(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    // The first value above the range: a power of two, hence exact.
    constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    if (!(value > kLow)) return std::numeric_limits<To>::min();
    return value < kEnd ? static_cast<To>(value) : std::numeric_limits<To>::max();
  } else {
    return static_cast<To>(value);
  }
}

template <class Stored, class T>
T read_element(const std::byte* p) {
  Stored stored;
  std::memcpy(&stored, p, sizeof stored);
  return cast_element<T>(stored);
}

template <class Stored, class T>
void write_element(std::byte* p, T value) {
  const Stored stored = cast_element<Stored>(value);
  std::memcpy(p, &stored, sizeof stored);
}

// The element at `p`, of type `dtype`, as a T.
template <class T>
T load_element(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::kFloat32: return read_element<float, T>(p);
    case DType::kFloat64: return read_element<double, T>(p);
    case DType::kFloat16: return cast_element<T>(float_from_f16(read_element<uint16_t, uint16_t>(p)));
    case DType::kBFloat16: return cast_element<T>(float_from_bf16(read_element<uint16_t, uint16_t>(p)));
    case DType::kInt8: return read_element<int8_t, T>(p);
    case DType::kInt16: return read_element<int16_t, T>(p);
    case DType::kInt32: return read_element<int32_t, T>(p);
    case DType::kInt64: return read_element<int64_t, T>(p);
    case DType::kUInt8: return read_element<uint8_t, T>(p);
    case DType::kUInt16: return read_element<uint16_t, T>(p);
    case DType::kUInt32: return read_element<uint32_t, T>(p);
    case DType::kUInt64: return read_element<uint64_t, T>(p);
    case DType::kBool: return cast_element<T>(read_element<uint8_t, uint8_t>(p) != 0);
  }
  return T{};
}

template <class T>
void store_element(DType dtype, std::byte* p, T value) {
  switch (dtype) {
    case DType::kFloat32: return write_element<float>(p, value);
    case DType::kFloat64: return write_element<double>(p, value);
    case DType::kFloat16: return write_element<uint16_t>(p, f16_from_float(static_cast<float>(value)));
    case DType::kBFloat16: return write_element<uint16_t>(p, bf16_from_float(static_cast<float>(value)));
    case DType::kInt8: return write_element<int8_t>(p, value);
    case DType::kInt16: return write_element<int16_t>(p, value);
    case DType::kInt32: return write_element<int32_t>(p, value);
    case DType::kInt64: return write_element<int64_t>(p, value);
    case DType::kUInt8: return write_element<uint8_t>(p, value);
    case DType::kUInt16: return write_element<uint16_t>(p, value);
    case DType::kUInt32: return write_element<uint32_t>(p, value);
    case DType::kUInt64: return write_element<uint64_t>(p, value);
    case DType::kBool: return write_element<uint8_t>(p, static_cast<uint8_t>(value != 0));
  }
}

}  // namespace flywheel::kernels
