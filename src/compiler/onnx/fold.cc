// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/fold.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/slice.h"
#include "kernels/program_scalar.h"

namespace flywheel::onnx_import {
namespace {

constexpr int kMaxDepth = 64;                        // of a chain of nodes
constexpr double kExactIntegers = 9007199254740992;  // 2^53: chains are computed in double

// The nearest value (ties to even) of a binary format with `mantissa` stored bits and 16 bits in all.
uint16_t round_to_16_bits(double value, int mantissa, int exponent_bias) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int exponent_bits = 15 - mantissa;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(value)) return infinity | static_cast<uint16_t>(1 << (mantissa - 1));
  double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - exponent_bias);
  const double steps = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));  // < 2^(mantissa + 1), or equal
  const auto bits = static_cast<int64_t>(steps) + (static_cast<int64_t>(exponent + exponent_bias - 1) << mantissa);
  return sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity));
}

int64_t truncated(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 9223372036854775807.0) return std::numeric_limits<int64_t>::max();
  if (value <= -9223372036854775808.0) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

template <class T, class V>
ir::ConstTensor converted(DType dtype, Dims dims, const std::vector<V>& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const V value : values) {
    if constexpr (std::is_integral_v<T> && std::is_floating_point_v<V>) {
      out.push_back(static_cast<T>(truncated(value)));
    } else {
      out.push_back(static_cast<T>(value));
    }
  }
  return ir::ConstTensor::from<T>(dtype, std::move(dims), out);
}

template <class V>
ir::ConstTensor tensor_from(DType dtype, Dims dims, const std::vector<V>& values) {
  std::vector<uint16_t> halves;
  switch (dtype) {
    case DType::kFloat32: return converted<float>(dtype, std::move(dims), values);
    case DType::kFloat64: return converted<double>(dtype, std::move(dims), values);
    case DType::kFloat16:
      for (const V value : values) halves.push_back(round_to_16_bits(static_cast<double>(value), 10, 15));
      return ir::ConstTensor::from<uint16_t>(dtype, std::move(dims), halves);
    case DType::kBFloat16:
      for (const V value : values) halves.push_back(round_to_16_bits(static_cast<double>(value), 7, 127));
      return ir::ConstTensor::from<uint16_t>(dtype, std::move(dims), halves);
    case DType::kInt8: return converted<int8_t>(dtype, std::move(dims), values);
    case DType::kInt16: return converted<int16_t>(dtype, std::move(dims), values);
    case DType::kInt32: return converted<int32_t>(dtype, std::move(dims), values);
    case DType::kInt64: return converted<int64_t>(dtype, std::move(dims), values);
    case DType::kUInt8: return converted<uint8_t>(dtype, std::move(dims), values);
    case DType::kUInt16: return converted<uint16_t>(dtype, std::move(dims), values);
    case DType::kUInt32: return converted<uint32_t>(dtype, std::move(dims), values);
    case DType::kUInt64: return converted<uint64_t>(dtype, std::move(dims), values);
    case DType::kBool: break;
  }
  std::vector<uint8_t> flags;
  for (const V value : values) flags.push_back(value != 0);
  return ir::ConstTensor::from<uint8_t>(dtype, std::move(dims), flags);
}

std::vector<double> numbers_of(const ir::ConstTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.as_double(static_cast<int64_t>(i));
  return values;
}

std::optional<std::vector<int64_t>> constants(const std::vector<DimExpr>& expressions) {
  std::vector<int64_t> values;
  for (const DimExpr& expression : expressions) {
    const auto constant = expression.constant();
    if (!constant) return std::nullopt;
    values.push_back(*constant);
  }
  return values;
}

// Index into an operand with `dims` for the element at flat index `index` of a result with `out_dims`.
int64_t broadcast_index(int64_t index, const Dims& out_dims, const Dims& dims) {
  int64_t flat = 0, stride = 1;
  for (size_t k = 0; k < out_dims.size(); ++k) {
    const int64_t position = index % out_dims[out_dims.size() - 1 - k];
    index /= out_dims[out_dims.size() - 1 - k];
    if (k >= dims.size()) continue;
    const int64_t extent = dims[dims.size() - 1 - k];
    if (extent != 1) flat += position * stride;
    stride *= extent;
  }
  return flat;
}

std::optional<std::vector<double>> elementwise(const ir::Node& node, const kernels::Instruction& instruction,
                                               const std::vector<ir::ConstTensor>& operands, const Dims& dims) {
  kernels::Program program;
  program.inputs = static_cast<uint8_t>(operands.size());
  program.compute =
      is_float(operands.front().dtype) || is_float(node.output()->dtype) ? DType::kFloat64 : DType::kInt64;
  program.code = {instruction};
  program.code[0].dst = program.result = program.inputs;
  program.code[0].a = 0;
  program.code[0].b = program.inputs > 1 ? 1 : 0;
  program.code[0].c = program.inputs > 2 ? 2 : 0;
  if (operands.size() > 3 || !program.validate().is_ok()) return std::nullopt;
  std::vector<double> result(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < result.size(); ++i) {
    double inputs[3] = {};
    for (size_t k = 0; k < operands.size(); ++k) {
      inputs[k] = operands[k].as_double(broadcast_index(static_cast<int64_t>(i), dims, operands[k].dims));
    }
    result[i] = kernels::evaluate_scalar(program, inputs);
  }
  return result;
}

std::optional<std::vector<double>> concatenated(const ir::Node& node, const std::vector<ir::ConstTensor>& operands) {
  if (node.output()->rank() != 1) return std::nullopt;
  std::vector<double> result;
  for (const auto& operand : operands) {
    const auto values = numbers_of(operand);
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

std::optional<std::vector<double>> gathered(const ir::Node& node, const std::vector<ir::ConstTensor>& operands) {
  if (operands[0].dims.size() != 1 || node.int_or("axis", 0) != 0) return std::nullopt;
  std::vector<double> result;
  for (int64_t i = 0; i < operands[1].elements(); ++i) {
    int64_t index = operands[1].as_int(i);
    if (index < 0) index += operands[0].elements();
    if (index < 0 || index >= operands[0].elements()) return std::nullopt;
    result.push_back(operands[0].as_double(index));
  }
  return result;
}

std::optional<std::vector<double>> reduced(const ir::Node& node, const ir::ConstTensor& operand) {
  if (node.output()->rank() > 0 && constants(node.output()->shape) != Dims(node.output()->rank(), 1))
    return std::nullopt;
  const std::vector<double> values = numbers_of(operand);
  if (values.empty()) return std::nullopt;
  double result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    if (node.op() == "ReduceMin") result = std::min(result, values[i]);
    if (node.op() == "ReduceMax") result = std::max(result, values[i]);
    if (node.op() == "ReduceProd") result *= values[i];
    if (node.op() == "ReduceSum") result += values[i];
  }
  return std::vector<double>{result};
}

// Element i of a result with `dims` is the operand's at offset + sum of its coordinates times `strides`.
std::vector<double> picked(const ir::ConstTensor& operand, const Dims& dims, const Dims& strides, int64_t offset) {
  std::vector<double> result(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = offset;
    for (size_t k = dims.size(); k-- > 0;) {
      at += rest % dims[k] * strides[k];
      rest /= dims[k];
    }
    result[i] = operand.as_double(at);
  }
  return result;
}

std::optional<std::vector<double>> transposed(const ir::Node& node, const ir::ConstTensor& operand, const Dims& dims) {
  const auto* perm = node.find<std::vector<int64_t>>("perm");
  if (perm == nullptr || perm->size() != dims.size()) return std::nullopt;
  const Dims from = contiguous_strides(operand.dims);
  Dims strides;
  for (int64_t axis : *perm) strides.push_back(from[axis]);
  return picked(operand, dims, strides, 0);
}

std::optional<std::vector<double>> sliced(const ir::Node& node, const ir::ConstTensor& operand, const Dims& dims) {
  const auto ranges = ops::slice_ranges(node);
  if (!ranges.is_ok() || ranges.value().size() != dims.size()) return std::nullopt;
  Dims strides = contiguous_strides(operand.dims);
  int64_t offset = 0;
  for (size_t k = 0; k < dims.size(); ++k) {
    const auto start = ranges.value()[k].start.constant();
    if (!start) return std::nullopt;
    offset += *start * strides[k];
    strides[k] *= ranges.value()[k].step;
  }
  if (element_count(dims) == 0) return std::vector<double>();
  return picked(operand, dims, strides, offset);
}

std::optional<std::vector<double>> compute_node(const ir::Node& node, const std::vector<ir::ConstTensor>& operands,
                                                const Dims& dims) {
  const std::string& op = node.op();
  if (op == "Cast" || op == "Reshape" || op == "Squeeze" || op == "Unsqueeze") {
    std::vector<double> values = numbers_of(operands[0]);
    if (op == "Cast" && !is_float(node.output()->dtype)) {
      for (double& value : values) value = std::trunc(value);
    }
    return values;
  }
  if (op == "Concat") return concatenated(node, operands);
  if (op == "Gather") return gathered(node, operands);
  if (op == "Transpose") return transposed(node, operands[0], dims);
  if (op == "Slice") return sliced(node, operands[0], dims);
  if (op == "ReduceMin" || op == "ReduceMax" || op == "ReduceProd" || op == "ReduceSum")
    return reduced(node, operands[0]);
  const ops::Op* definition = ops::find_op(op);
  if (definition == nullptr || definition->instruction == nullptr) return std::nullopt;
  const auto instruction = definition->instruction(node);
  return instruction ? elementwise(node, *instruction, operands, dims) : std::nullopt;
}

}  // namespace

ir::ConstTensor make_tensor(DType dtype, Dims dims, const std::vector<double>& values) {
  return tensor_from(dtype, std::move(dims), values);
}

ir::ConstTensor make_int_tensor(DType dtype, Dims dims, const std::vector<int64_t>& values) {
  return tensor_from(dtype, std::move(dims), values);
}

std::optional<ir::ConstTensor> Folder::value(const ir::Value& value) { return lookup(value, 0); }

std::optional<ir::ConstTensor> Folder::lookup(const ir::Value& value, int depth) {
  if (value.constant) return value.constant;
  if (depth > kMaxDepth) return std::nullopt;
  if (auto it = known_.find(&value); it != known_.end()) return it->second;
  auto result = compute(value, depth);
  known_.emplace(&value, result);
  return result;
}

std::optional<ir::ConstTensor> Folder::compute(const ir::Value& value, int depth) {
  const auto dims = constants(value.shape);
  const auto count = dims ? checked_element_count(*dims) : std::nullopt;
  if (!count || *count > kMaxElements) return std::nullopt;
  if (const auto elements = value.known_elements()) {
    const auto values = constants(*elements);
    if (values && static_cast<int64_t>(values->size()) == *count) return make_int_tensor(value.dtype, *dims, *values);
  }
  const ir::Node* node = value.producer();
  if (node == nullptr || node->outputs().size() != 1) return std::nullopt;
  if (node->op() == "ConstantOfShape") {
    const auto* fill = node->find<ir::ConstTensor>("value");
    const double number = fill == nullptr ? 0 : fill->as_double(0);
    return make_tensor(value.dtype, *dims, std::vector<double>(static_cast<size_t>(*count), number));
  }
  if (node->inputs().empty()) return std::nullopt;
  std::vector<ir::ConstTensor> operands;
  for (const ir::Value* input : node->inputs()) {
    if (input == nullptr) return std::nullopt;
    auto operand = lookup(*input, depth + 1);
    if (!operand) return std::nullopt;
    operands.push_back(*std::move(operand));
  }
  auto result = compute_node(*node, operands, *dims);
  if (!result || static_cast<int64_t>(result->size()) != *count) return std::nullopt;
  if (!is_float(value.dtype)) {
    for (const double number : *result) {
      if (!(std::fabs(number) <= kExactIntegers)) return std::nullopt;
    }
  }
  return make_tensor(value.dtype, *dims, *result);
}

}  // namespace flywheel::onnx_import
