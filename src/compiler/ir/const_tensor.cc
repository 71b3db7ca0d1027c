// SPDX-License-Identifier: Apache-2.0
// Reading elements of constants whatever their type.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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

}  // namespace

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
