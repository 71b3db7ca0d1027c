// SPDX-License-Identifier: Apache-2.0
// Element types of tensors. The numbers are stored in engine files: add at the end only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace flywheel {

enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUInt8 = 8,
  kUInt16 = 9,
  kUInt32 = 10,
  kUInt64 = 11,
  kBool = 12,
};
inline constexpr int kDTypeCount = 13;

constexpr size_t dtype_size(DType dtype) {  // bytes an element
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16: return 2;
    default: return 1;
  }
}

constexpr std::string_view dtype_name(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"f32", "f64", "f16", "bf16", "i8",  "i16", "i32",
                                                    "i64", "u8",  "u16", "u32",  "u64", "bool"};
  return static_cast<int>(dtype) < kDTypeCount ? kNames[static_cast<int>(dtype)] : "invalid";
}

constexpr bool is_float(DType dtype) { return dtype <= DType::kBFloat16; }

}  // namespace flywheel
