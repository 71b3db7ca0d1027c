// SPDX-License-Identifier: Apache-2.0
// The element types that a model configuration and the inference protocols can name. Three spellings exist for each:
// the configuration's (TYPE_FP32), the protocols' (FP32, and BYTES for strings) and the number on the wire, which is
// the enumerator's value. The runtime supports fewer; the repository refuses the rest when it loads a model. Thread
// safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flywheel::config {

enum class DataType : uint8_t {
  kInvalid = 0,
  kBool = 1,
  kUint8 = 2,
  kUint16 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
  kInt64 = 9,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kString = 13,
  kBf16 = 14,
};

// "FP32"; "BYTES" for strings; "<invalid>" for kInvalid.
std::string_view protocol_name(DataType type);
// "TYPE_FP32".
std::string_view config_name(DataType type);
// The inverse of protocol_name; nothing for an unknown name.
std::optional<DataType> data_type_from_protocol(std::string_view name);
// 0 for strings, whose elements differ in size, and for kInvalid.
size_t element_bytes(DataType type);

}  // namespace flywheel::config
