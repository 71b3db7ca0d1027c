// SPDX-License-Identifier: Apache-2.0
// ONNX's numbers and their names, and how text from a model is put into messages. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flywheel/dtype.h"
#include "flywheel/status.h"

namespace flywheel::onnx_import {

// TensorProto.data_type and TypeProto.Tensor.elem_type.
enum TensorType : int32_t {
  kTypeUndefined = 0,
  kTypeFloat = 1,
  kTypeUInt8 = 2,
  kTypeInt8 = 3,
  kTypeUInt16 = 4,
  kTypeInt16 = 5,
  kTypeInt32 = 6,
  kTypeInt64 = 7,
  kTypeString = 8,
  kTypeBool = 9,
  kTypeFloat16 = 10,
  kTypeDouble = 11,
  kTypeUInt32 = 12,
  kTypeUInt64 = 13,
  kTypeBFloat16 = 16,
};

// AttributeProto.type.
enum AttributeType : int32_t {
  kAttributeUndefined = 0,
  kAttributeFloat = 1,
  kAttributeInt = 2,
  kAttributeString = 3,
  kAttributeTensor = 4,
  kAttributeGraph = 5,
  kAttributeFloats = 6,
  kAttributeInts = 7,
  kAttributeStrings = 8,
  kAttributeTensors = 9,
  kAttributeGraphs = 10,
  kAttributeSparseTensor = 11,
};

// "FLOAT8E4M3FN"; "type 99" for a number that ONNX does not define.
std::string tensor_type_name(int64_t type);
std::string attribute_type_name(int32_t type);
// Nullopt for types that tensors of ours cannot have.
std::optional<DType> to_dtype(int64_t tensor_type);

// "ai.onnx" for the empty domain, else the domain.
std::string_view domain_name(std::string_view domain);
bool is_ai_onnx(std::string_view domain);

// Names of a model become names of ours, and reach terminals and JSON: valid UTF-8 without control characters, at most
// kMaxNameBytes. `what` is put before the name in the message.
inline constexpr size_t kMaxNameBytes = 4096;
Status check_name(std::string_view name, std::string_view what);
// Any bytes as something that can be printed: what is not plain text becomes '?', and long text is cut.
std::string printable(std::string_view text);

}  // namespace flywheel::onnx_import
