// SPDX-License-Identifier: Apache-2.0
// Reading and writing elements of constants whatever their type.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ir/element.h"
#include "compiler/ir/graph.h"

namespace flywheel::ir {
namespace {

double half_to_double(uint16_t bits) {
  int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

template <class T>
T load(const ConstTensor& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.data.get() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

int64_t saturate(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 9223372036854775808.0) return std::numeric_limits<int64_t>::max();
  if (value < -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

uint16_t half_bits(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = -13;
  if (magnitude >= 0x1p-14) std::frexp(magnitude, &exponent);
  double units = std::nearbyint(std::ldexp(magnitude, 11 - exponent));  // of the last place
  return static_cast<uint16_t>(sign | (((exponent + 13) << 10) + static_cast<int>(units)));
}

uint16_t bfloat_bits(double value) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
void store_integer(double value, std::byte* to) {
  using Limits = std::numeric_limits<T>;
  T result = 0;
  if (value >= std::ldexp(1.0, Limits::digits)) {
    result = Limits::max();
  } else if (value <= static_cast<double>(Limits::min())) {
    result = Limits::min();
  } else if (!std::isnan(value)) {
    result = static_cast<T>(value);
  }
  store(result, to);
}

}  // namespace

void store_element(DType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DType::kFloat32: return store(static_cast<float>(value), to);
    case DType::kFloat64: return store(value, to);
    case DType::kFloat16: return store(half_bits(value), to);
    case DType::kBFloat16: return store(bfloat_bits(value), to);
    case DType::kInt8: return store_integer<int8_t>(value, to);
    case DType::kInt16: return store_integer<int16_t>(value, to);
    case DType::kInt32: return store_integer<int32_t>(value, to);
    case DType::kInt64: return store_integer<int64_t>(value, to);
    case DType::kUInt8: return store_integer<uint8_t>(value, to);
    case DType::kUInt16: return store_integer<uint16_t>(value, to);
    case DType::kUInt32: return store_integer<uint32_t>(value, to);
    case DType::kUInt64: return store_integer<uint64_t>(value, to);
    case DType::kBool: return store(static_cast<uint8_t>(value != 0 ? 1 : 0), to);
  }
}

ConstTensor ConstTensor::zeros(DType dtype, Dims dims) {
  std::vector<std::byte> bytes(static_cast<size_t>(element_count(dims)) * dtype_size(dtype));
  return from<std::byte>(dtype, std::move(dims), bytes);
}

bool ConstTensor::same_content(const ConstTensor& other) const {
  if (dtype != other.dtype || dims != other.dims) return false;
  size_t bytes = size_bytes();
  return bytes == 0 || data == other.data || std::memcmp(data.get(), other.data.get(), bytes) == 0;
}

double ConstTensor::as_double(int64_t i) const {
  switch (dtype) {
    case DType::kFloat32: return load<float>(*this, i);
    case DType::kFloat64: return load<double>(*this, i);
    case DType::kFloat16: return half_to_double(load<uint16_t>(*this, i));
    case DType::kBFloat16: return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(*this, i)) << 16);
    case DType::kUInt64: return static_cast<double>(load<uint64_t>(*this, i));
    default: return static_cast<double>(as_int(i));
  }
}

int64_t ConstTensor::as_int(int64_t i) const {
  switch (dtype) {
    case DType::kInt8: return load<int8_t>(*this, i);
    case DType::kInt16: return load<int16_t>(*this, i);
    case DType::kInt32: return load<int32_t>(*this, i);
    case DType::kInt64: return load<int64_t>(*this, i);
    case DType::kUInt8: return load<uint8_t>(*this, i);
    case DType::kUInt16: return load<uint16_t>(*this, i);
    case DType::kUInt32: return load<uint32_t>(*this, i);
    case DType::kUInt64: {
      uint64_t value = load<uint64_t>(*this, i);
      constexpr uint64_t kLimit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return static_cast<int64_t>(std::min(value, kLimit));
    }
    case DType::kBool: return load<uint8_t>(*this, i) != 0 ? 1 : 0;
    default: return saturate(as_double(i));
  }
}

}  // namespace flywheel::ir
