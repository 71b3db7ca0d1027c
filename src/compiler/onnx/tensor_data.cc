// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/tensor_data.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX's raw data is little-endian and is used as it lies");

using onnx_pb::TensorProto;

Status wrong_count(std::string_view field, size_t found, int64_t expected) {
  return invalid_argument(fmt::format("its {} has {} values where its dims need {}", field, found, expected));
}

// Which of the fields that may hold elements are used.
struct UsedFields {
  std::string_view name = "no data field";
  int count = 0;
};
UsedFields used_fields(const TensorProto& tensor) {
  UsedFields used;
  const auto note = [&](bool present, std::string_view name) {
    if (!present) return;
    used.name = name;
    ++used.count;
  };
  note(tensor.has_raw_data() && !tensor.raw_data().empty(), "raw_data");
  note(tensor.float_data_size() > 0, "float_data");
  note(tensor.int32_data_size() > 0, "int32_data");
  note(tensor.int64_data_size() > 0, "int64_data");
  note(tensor.double_data_size() > 0, "double_data");
  note(tensor.uint64_data_size() > 0, "uint64_data");
  note(tensor.string_data_size() > 0, "string_data");
  return used;
}

// The one byte makes the pointer of an empty tensor a real one.
ir::ConstTensor empty_tensor(DType dtype, Dims dims) {
  static const std::byte kNothing[16] = {};
  return {dtype, std::move(dims), std::shared_ptr<const std::byte>(std::shared_ptr<void>(), kNothing)};
}

// Data as it lies, kept alive by `owner`; copied where its address does not suit the type.
template <class Owner>
ir::ConstTensor alias_or_copy(DType dtype, Dims dims, std::shared_ptr<Owner> owner, const void* data) {
  const size_t bytes = static_cast<size_t>(element_count(dims)) * dtype_size(dtype);
  if (reinterpret_cast<uintptr_t>(data) % dtype_size(dtype) != 0) {
    return ir::ConstTensor::from<std::byte>(dtype, std::move(dims), {static_cast<const std::byte*>(data), bytes});
  }
  return {dtype, std::move(dims),
          std::shared_ptr<const std::byte>(std::move(owner), static_cast<const std::byte*>(data))};
}

// Booleans are bytes; the kernels count on 0 and 1.
ir::ConstTensor normalized(ir::ConstTensor tensor) {
  if (tensor.dtype != DType::kBool) return tensor;
  const auto bytes = tensor.as<uint8_t>();
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b <= 1; })) return tensor;
  std::vector<uint8_t> values(bytes.begin(), bytes.end());
  for (uint8_t& value : values) value = value != 0;
  return ir::ConstTensor::from<uint8_t>(DType::kBool, std::move(tensor.dims), values);
}

template <class T, class Field>
Result<ir::ConstTensor> narrowed(const Field& field, std::string_view field_name, DType dtype, Dims dims) {
  const int64_t count = element_count(dims);
  if (field.size() != count) return wrong_count(field_name, field.size(), count);
  std::vector<T> values(static_cast<size_t>(count));
  for (int i = 0; i < field.size(); ++i) {
    const auto value = field.Get(i);
    if (!std::in_range<T>(value)) {
      return invalid_argument(
          fmt::format("its {} holds {} at {}, which {} cannot hold", field_name, value, i, dtype_name(dtype)));
    }
    values[i] = static_cast<T>(value);
  }
  return ir::ConstTensor::from<T>(dtype, std::move(dims), values);
}

}  // namespace

Result<Dims> tensor_dims(const TensorProto& tensor, DType dtype) {
  Dims dims(tensor.dims().begin(), tensor.dims().end());
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return unsupported(fmt::format("it has {} dims; at most {} are supported", dims.size(), kMaxRank));
  }
  const auto count = checked_element_count(dims);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(dtype_size(dtype)), &bytes)) {
    return invalid_argument(fmt::format("its dims {} are negative or too large", dims_to_string(dims)));
  }
  return dims;
}

Result<ir::ConstTensor> TensorReader::read(const TensorProto& tensor) {
  const auto dtype = to_dtype(tensor.data_type());
  if (!dtype) {
    return unsupported(fmt::format("its element type {} is not supported", tensor_type_name(tensor.data_type())));
  }
  if (tensor.has_segment()) return unsupported("it is stored in segments");
  FW_ASSIGN_OR_RETURN(Dims dims, tensor_dims(tensor, *dtype));
  const int64_t count = element_count(dims);
  const UsedFields used = used_fields(tensor);
  if (tensor.data_location() == 1) {
    if (used.count != 0) return invalid_argument(fmt::format("it has both external data and {}", used.name));
    return read_external(tensor, *dtype, std::move(dims));
  }
  if (tensor.data_location() != 0) {
    return invalid_argument(fmt::format("its data_location is {}; 0 and 1 are defined", tensor.data_location()));
  }
  if (tensor.external_data_size() != 0) {
    return invalid_argument("it has an external_data record but data_location says that its data is in the model");
  }
  if (used.count > 1) return invalid_argument("its data is given in more than one field");
  if (used.count == 0) {
    if (count != 0) return invalid_argument(fmt::format("it has no data where its dims need {} values", count));
    return empty_tensor(*dtype, std::move(dims));
  }

  if (used.name == "raw_data") {
    const size_t bytes = static_cast<size_t>(count) * dtype_size(*dtype);
    if (tensor.raw_data().size() != bytes) {
      return invalid_argument(fmt::format("its raw_data has {} bytes where {} of {} need {}", tensor.raw_data().size(),
                                          dims_to_string(dims), dtype_name(*dtype), bytes));
    }
    return normalized(alias_or_copy(*dtype, std::move(dims), owner_, tensor.raw_data().data()));
  }

  const auto as_it_lies = [&](const auto& field) -> Result<ir::ConstTensor> {
    if (field.size() != count) return wrong_count(used.name, field.size(), count);
    return alias_or_copy(*dtype, std::move(dims), owner_, field.data());
  };
  std::string_view expected = "int32_data";
  switch (*dtype) {
    case DType::kFloat32:
      if (used.name == "float_data") return as_it_lies(tensor.float_data());
      expected = "float_data";
      break;
    case DType::kFloat64:
      if (used.name == "double_data") return as_it_lies(tensor.double_data());
      expected = "double_data";
      break;
    case DType::kInt64:
      if (used.name == "int64_data") return as_it_lies(tensor.int64_data());
      expected = "int64_data";
      break;
    case DType::kUInt64:
      if (used.name == "uint64_data") return as_it_lies(tensor.uint64_data());
      expected = "uint64_data";
      break;
    case DType::kUInt32:
      if (used.name == "uint64_data")
        return narrowed<uint32_t>(tensor.uint64_data(), used.name, *dtype, std::move(dims));
      expected = "uint64_data";
      break;
    default:
      if (used.name != "int32_data") break;
      switch (*dtype) {
        case DType::kInt32: return as_it_lies(tensor.int32_data());
        case DType::kInt16: return narrowed<int16_t>(tensor.int32_data(), used.name, *dtype, std::move(dims));
        case DType::kInt8: return narrowed<int8_t>(tensor.int32_data(), used.name, *dtype, std::move(dims));
        case DType::kUInt8: return narrowed<uint8_t>(tensor.int32_data(), used.name, *dtype, std::move(dims));
        case DType::kBool: {
          FW_ASSIGN_OR_RETURN(ir::ConstTensor flags,
                              narrowed<uint8_t>(tensor.int32_data(), used.name, *dtype, std::move(dims)));
          return normalized(std::move(flags));
        }
        default:  // u16, and f16 and bf16 as their bit patterns
          return narrowed<uint16_t>(tensor.int32_data(), used.name, *dtype, std::move(dims));
      }
  }
  return invalid_argument(
      fmt::format("its data is in {}, where {} is kept in {} or raw_data", used.name, dtype_name(*dtype), expected));
}

Result<ir::ConstTensor> TensorReader::read_external(const TensorProto& tensor, DType dtype, Dims dims) {
  ExternalData::Record record;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      record.location = entry.value();
    } else if (entry.key() == "offset") {
      record.offset = entry.value();
    } else if (entry.key() == "length") {
      record.length = entry.value();
    }
  }
  const size_t bytes = static_cast<size_t>(element_count(dims)) * dtype_size(dtype);
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const std::byte> data, external_.read(record, bytes));
  if (bytes == 0) return empty_tensor(dtype, std::move(dims));
  external_hash_ = XXH3_64bits_withSeed(data.get(), bytes, external_hash_);
  return normalized(alias_or_copy(dtype, std::move(dims), data, data.get()));
}

}  // namespace flywheel::onnx_import
