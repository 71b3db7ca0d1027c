// SPDX-License-Identifier: Apache-2.0
// The conversions of tile_convert.h; included by tile_convert_<isa>.cc alone. Plain loops, which the compiler
// vectorizes for the ISA.
#pragma once

#include "kernels/pointwise/tile_convert.h"
#include "kernels/simd/vec.h"

namespace flywheel::kernels::FW_ISA {

template <class T>
static inline void load_row(const void* from, int64_t stride, int64_t count, float* to) {
  const T* p = static_cast<const T*>(from);
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(p[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(p[i * stride]);
  }
}

// kLow and kHigh are floats inside the type's range; clamping to them keeps the conversion defined, and NaN gives kLow.
template <class T>
static inline void store_row(const float* from, float low, float high, int64_t count, void* to, int64_t stride) {
  T* p = static_cast<T*>(to);
  auto cast = [=](float x) FW_LAMBDA {
    x = x > low ? x : low;
    return static_cast<T>(x < high ? x : high);
  };
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) p[i] = cast(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) p[i * stride] = cast(from[i]);
  }
}

static inline void load_half_row(const uint16_t* p, int64_t stride, int64_t count, float* to) {
  int64_t i = 0;
  for (; stride == 1 && i + kLanes <= count; i += kLanes) store(to + i, load_halves(p + i));
  for (; i < count; i += kLanes) {
    uint16_t lanes[kLanes] = {};
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    for (int64_t j = 0; j < n; ++j) lanes[j] = p[(i + j) * stride];
    store_first(to + i, load_halves(lanes), n);
  }
}

static inline void store_half_row(const float* from, int64_t count, uint16_t* p, int64_t stride) {
  int64_t i = 0;
  for (; stride == 1 && i + kLanes <= count; i += kLanes) halves_from_floats(from + i, p + i);
  for (; i < count; i += kLanes) {
    uint16_t lanes[kLanes];
    float padded[kLanes];
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    store(padded, load_first(from + i, n));
    halves_from_floats(padded, lanes);
    for (int64_t j = 0; j < n; ++j) p[(i + j) * stride] = lanes[j];
  }
}

static inline void load_bfloat_row(const uint16_t* p, int64_t stride, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(p[i * stride]) << 16;
    memcpy(to + i, &bits, sizeof bits);
  }
}

static inline void store_bfloat_row(const float* from, int64_t count, uint16_t* p, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quieted = bits >> 16 | 0x40;
    p[i * stride] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quieted : rounded);
  }
}

void load_as_floats(DType dtype, const void* from, int64_t stride, int64_t count, float* to) {
  switch (dtype) {
    case DType::kFloat32: return load_row<float>(from, stride, count, to);
    case DType::kFloat64: return load_row<double>(from, stride, count, to);
    case DType::kFloat16: return load_half_row(static_cast<const uint16_t*>(from), stride, count, to);
    case DType::kBFloat16: return load_bfloat_row(static_cast<const uint16_t*>(from), stride, count, to);
    case DType::kInt8: return load_row<int8_t>(from, stride, count, to);
    case DType::kInt16: return load_row<int16_t>(from, stride, count, to);
    case DType::kInt32: return load_row<int32_t>(from, stride, count, to);
    case DType::kInt64: return load_row<int64_t>(from, stride, count, to);
    case DType::kUInt8: return load_row<uint8_t>(from, stride, count, to);
    case DType::kUInt16: return load_row<uint16_t>(from, stride, count, to);
    case DType::kUInt32: return load_row<uint32_t>(from, stride, count, to);
    case DType::kUInt64: return load_row<uint64_t>(from, stride, count, to);
    case DType::kBool: {
      const uint8_t* p = static_cast<const uint8_t*>(from);
      for (int64_t i = 0; i < count; ++i) to[i] = p[i * stride] != 0 ? 1.0F : 0.0F;
      return;
    }
  }
}

void store_from_floats(DType dtype, const float* from, int64_t count, void* to, int64_t stride) {
  switch (dtype) {
    case DType::kFloat32: {
      float* p = static_cast<float*>(to);
      for (int64_t i = 0; i < count; ++i) p[i * stride] = from[i];
      return;
    }
    case DType::kFloat64: {
      double* p = static_cast<double*>(to);
      for (int64_t i = 0; i < count; ++i) p[i * stride] = static_cast<double>(from[i]);
      return;
    }
    case DType::kFloat16: return store_half_row(from, count, static_cast<uint16_t*>(to), stride);
    case DType::kBFloat16: return store_bfloat_row(from, count, static_cast<uint16_t*>(to), stride);
    case DType::kInt8: return store_row<int8_t>(from, -128.0F, 127.0F, count, to, stride);
    case DType::kInt16: return store_row<int16_t>(from, -32768.0F, 32767.0F, count, to, stride);
    case DType::kInt32: return store_row<int32_t>(from, -0x1p31F, 0x1.fffffep30F, count, to, stride);
    case DType::kInt64: return store_row<int64_t>(from, -0x1p63F, 0x1.fffffep62F, count, to, stride);
    case DType::kUInt8: return store_row<uint8_t>(from, 0.0F, 255.0F, count, to, stride);
    case DType::kUInt16: return store_row<uint16_t>(from, 0.0F, 65535.0F, count, to, stride);
    case DType::kUInt32: return store_row<uint32_t>(from, 0.0F, 0x1.fffffep31F, count, to, stride);
    case DType::kUInt64: return store_row<uint64_t>(from, 0.0F, 0x1.fffffep63F, count, to, stride);
    case DType::kBool: {
      uint8_t* p = static_cast<uint8_t*>(to);
      for (int64_t i = 0; i < count; ++i) p[i * stride] = from[i] != 0.0F ? 1 : 0;
      return;
    }
  }
}

}  // namespace flywheel::kernels::FW_ISA
