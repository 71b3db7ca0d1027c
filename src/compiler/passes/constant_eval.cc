// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/constant_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ops/infer.h"
#include "compiler/ops/op.h"
#include "compiler/passes/rewrite.h"
#include "kernels/program_scalar.h"

namespace flywheel::passes {
namespace {

using ir::ConstTensor;
using ir::Node;

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

// Uninitialized; weights are large, so they are written once.
std::shared_ptr<std::byte> allocate(size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  return {static_cast<std::byte*>(::operator new(bytes + 1, kAlignment)),
          [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

// Elements of `x` at offset + sum of index * stride, strides in elements.
ConstTensor strided(const ConstTensor& x, const Dims& dims, const Dims& strides, int64_t offset) {
  const size_t size = dtype_size(x.dtype);
  const auto count = static_cast<size_t>(element_count(dims));
  std::shared_ptr<std::byte> bytes = allocate(count * size);
  std::vector<int64_t> index(dims.size(), 0);
  int64_t at = offset;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.get() + i * size, x.data.get() + static_cast<size_t>(at) * size, size);
    for (size_t d = dims.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < dims[d]) break;
      at -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
  return {x.dtype, dims, std::move(bytes)};
}

Dims broadcast_strides(const Dims& from, const Dims& to) {
  const Dims own = contiguous_strides(from);
  Dims strides(to.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[to.size() - from.size() + i] = own[i];
  }
  return strides;
}

Status cannot(const Node& node, std::string_view why) {
  return unsupported(fmt::format("{} cannot be evaluated at build time: {}", node.describe(), why));
}

DType compute_type(DType dtype) {
  if (dtype == DType::kFloat64) return DType::kFloat64;
  return is_float(dtype) ? DType::kFloat32 : DType::kInt64;
}

Result<ConstTensor> elementwise(const Node& node, const Dims& dims) {
  kernels::Instruction code = *ops::find_op(node.op())->instruction(node);
  const size_t arity = node.inputs().size();
  if (arity < 1 || arity > 3) return cannot(node, "it has no or more than three operands");
  code.a = 0;
  code.b = arity > 1 ? 1 : 0;
  code.c = arity > 2 ? 2 : 0;
  code.dst = static_cast<uint8_t>(arity);
  kernels::Program program;
  program.inputs = static_cast<uint8_t>(arity);
  program.code = {code};
  program.result = code.dst;
  program.compute = compute_type(node.input(arity - 1)->dtype);  // Where: its condition comes first
  std::vector<ConstTensor> operands;
  for (const ir::Value* input : node.inputs()) {
    if (!input) return cannot(node, "an operand is absent");
    operands.push_back(broadcast(*input->constant, dims));
  }
  std::vector<double> values(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < values.size(); ++i) {
    double in[3] = {0, 0, 0};
    for (size_t k = 0; k < operands.size(); ++k) {
      in[k] = operands[k].as_double(static_cast<int64_t>(i));
      if (!is_float(operands[k].dtype) && std::abs(in[k]) > kExactIntegers) return cannot(node, "integers beyond 2^53");
    }
    values[i] = kernels::evaluate_scalar(program, in);
    if (program.compute == DType::kInt64 && std::abs(values[i]) > kExactIntegers)
      return cannot(node, "integers beyond 2^53");
  }
  return from_doubles(node.output()->dtype, dims, values);
}

std::optional<Dims> plain_ints(const Node& node, std::string_view name) {
  std::optional<SymShape> dims = ops::dims_attribute(node, name);
  if (!dims) return std::nullopt;
  Dims result;
  for (const DimExpr& dim : *dims) {
    if (!dim.constant()) return std::nullopt;
    result.push_back(*dim.constant());
  }
  return result;
}

Result<ConstTensor> sliced(const Node& node, const ConstTensor& x, const Dims& dims) {
  std::optional<Dims> starts = plain_ints(node, "starts");
  std::optional<Dims> axes = plain_ints(node, "axes");
  std::optional<Dims> steps = plain_ints(node, "steps");
  if (!starts) return cannot(node, "its starts depend on dims");
  Dims strides = contiguous_strides(x.dims);
  int64_t offset = 0;
  const Dims own = strides;
  for (size_t i = 0; i < starts->size(); ++i) {
    const size_t axis = axes ? normalized_axis((*axes)[i], x.dims.size()) : i;
    const int64_t step = steps ? (*steps)[i] : 1;
    const int64_t extent = x.dims[axis];
    int64_t start = (*starts)[i];
    if (start < 0) start += extent;
    start = std::clamp<int64_t>(start, 0, step < 0 ? extent - 1 : extent);
    if (dims[axis] > 0) offset += start * own[axis];
    strides[axis] = own[axis] * step;
  }
  return strided(x, dims, strides, element_count(dims) == 0 ? 0 : offset);
}

Result<ConstTensor> gathered(const Node& node, const ConstTensor& data, const ConstTensor& indices, const Dims& dims) {
  const size_t axis = normalized_axis(node.int_or("axis", 0), data.dims.size());
  const int64_t extent = data.dims[axis];
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= data.dims[i];
  for (size_t i = axis + 1; i < data.dims.size(); ++i) inner *= data.dims[i];
  const size_t run = static_cast<size_t>(inner) * dtype_size(data.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(element_count(dims)) * dtype_size(data.dtype));
  std::byte* out = bytes.data();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < indices.elements(); ++i) {
      int64_t index = indices.as_int(i);
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) {
        return invalid_argument(fmt::format("{}: index {} is outside the {} elements of axis {}", node.describe(),
                                            indices.as_int(i), extent, axis));
      }
      if (run > 0) std::memcpy(out, data.data.get() + static_cast<size_t>(o * extent + index) * run, run);
      out += run;
    }
  }
  return ConstTensor::from<std::byte>(data.dtype, dims, bytes);
}

template <class T>
ConstTensor converted(DType dtype, Dims dims, std::span<const double> values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (double value : values) {
    if constexpr (std::is_integral_v<T>) {
      // Out of range is undefined in ONNX; the nearest value is as good as any and not undefined in C++.
      if (std::isnan(value)) value = 0;
      const auto low = static_cast<double>(std::numeric_limits<T>::min());
      const auto high = static_cast<double>(std::numeric_limits<T>::max());
      out.push_back(value >= high  ? std::numeric_limits<T>::max()
                    : value <= low ? std::numeric_limits<T>::min()
                                   : static_cast<T>(value));
    } else {
      out.push_back(static_cast<T>(value));
    }
  }
  return ConstTensor::from<T>(dtype, std::move(dims), std::span<const T>(out));
}

}  // namespace

Result<ConstTensor> from_doubles(DType dtype, Dims dims, std::span<const double> values) {
  switch (dtype) {
    case DType::kFloat32: return converted<float>(dtype, std::move(dims), values);
    case DType::kFloat64: return converted<double>(dtype, std::move(dims), values);
    case DType::kInt64: return converted<int64_t>(dtype, std::move(dims), values);
    case DType::kInt32: return converted<int32_t>(dtype, std::move(dims), values);
    case DType::kBool: {
      std::vector<uint8_t> bits;
      for (double value : values) bits.push_back(value != 0 ? 1 : 0);  // NaN is true
      return ConstTensor::from<uint8_t>(dtype, std::move(dims), std::span<const uint8_t>(bits));
    }
    default: return unsupported(fmt::format("constants of type {} are not computed at build time", dtype_name(dtype)));
  }
}

ConstTensor filled(DType dtype, Dims dims, double value) {
  std::vector<double> values(static_cast<size_t>(element_count(dims)), value);
  Result<ConstTensor> tensor = from_doubles(dtype, dims, values);
  return tensor.is_ok() ? std::move(tensor).value() : ConstTensor::zeros(dtype, std::move(dims));
}

ConstTensor permuted(const ConstTensor& x, std::span<const int64_t> perm) {
  const Dims own = contiguous_strides(x.dims);
  Dims dims, strides;
  for (int64_t axis : perm) {
    dims.push_back(x.dims[static_cast<size_t>(axis)]);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return strided(x, dims, strides, 0);
}

ConstTensor reshaped(const ConstTensor& x, Dims dims) { return {x.dtype, std::move(dims), x.data}; }

ConstTensor broadcast(const ConstTensor& x, const Dims& dims) {
  if (x.dims == dims) return x;
  return strided(x, dims, broadcast_strides(x.dims, dims), 0);
}

ConstTensor concatenated(std::span<const ConstTensor> parts, size_t axis) {
  Dims dims = parts[0].dims;
  dims[axis] = 0;
  for (const ConstTensor& part : parts) dims[axis] += part.dims[axis];
  int64_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= dims[i];
  std::shared_ptr<std::byte> bytes = allocate(static_cast<size_t>(element_count(dims)) * dtype_size(parts[0].dtype));
  std::byte* out = bytes.get();
  for (int64_t o = 0; o < outer; ++o) {
    for (const ConstTensor& part : parts) {
      const size_t run = part.size_bytes() / static_cast<size_t>(outer);
      if (run > 0) std::memcpy(out, part.data.get() + static_cast<size_t>(o) * run, run);
      out += run;
    }
  }
  return {parts[0].dtype, dims, std::move(bytes)};
}

ConstTensor mapped(const ConstTensor& x, const std::function<float(float, int64_t)>& f) {
  std::span<const float> in = x.as<float>();
  std::shared_ptr<std::byte> bytes = allocate(in.size_bytes());
  auto* out = reinterpret_cast<float*>(bytes.get());
  for (size_t i = 0; i < in.size(); ++i) out[i] = f(in[i], static_cast<int64_t>(i));
  return {DType::kFloat32, x.dims, std::move(bytes)};
}

Result<std::vector<ConstTensor>> evaluate_simple(const Node& node) {
  if (node.outputs().size() != 1) return cannot(node, "it has several outputs");
  std::optional<Dims> dims = constant_dims(node.output()->shape);
  if (!dims) return cannot(node, "its shape depends on dims");
  for (const ir::Value* input : node.inputs()) {
    if (input && !input->constant) return cannot(node, "an operand is computed");
  }
  const ConstTensor* x = node.input(0) ? &*node.input(0)->constant : nullptr;
  const std::string& op = node.op();
  auto one = [](ConstTensor tensor) { return std::vector<ConstTensor>{std::move(tensor)}; };
  if (op == "ConstantOfShape") {
    const auto* value = node.find<ConstTensor>("value");
    return one(value ? broadcast(reshaped(*value, {}), *dims) : ConstTensor::zeros(DType::kFloat32, *dims));
  }
  if (!x) return cannot(node, "it has no operand");
  if (op == "Identity" || op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") {
    return one(reshaped(*x, *dims));
  }
  if (op == "Transpose") {
    std::vector<int64_t> perm = node.ints_or("perm", {});
    if (perm.empty()) {
      for (size_t i = x->dims.size(); i-- > 0;) perm.push_back(static_cast<int64_t>(i));
    }
    return one(permuted(*x, perm));
  }
  if (op == "Expand") return one(broadcast(*x, *dims));
  if (op == "Slice") {
    FW_ASSIGN_OR_RETURN(ConstTensor result, sliced(node, *x, *dims));
    return one(std::move(result));
  }
  if (op == "Concat") {
    std::vector<ConstTensor> parts;
    for (const ir::Value* input : node.inputs()) parts.push_back(*input->constant);
    return one(concatenated(parts, normalized_axis(node.int_or("axis", 0), dims->size())));
  }
  if (op == "Gather") {
    FW_ASSIGN_OR_RETURN(ConstTensor result, gathered(node, *x, *node.input(1)->constant, *dims));
    return one(std::move(result));
  }
  if (is_elementwise(node)) {
    FW_ASSIGN_OR_RETURN(ConstTensor result, elementwise(node, *dims));
    return one(std::move(result));
  }
  return cannot(node, "no evaluator for this operator");
}

}  // namespace flywheel::passes
