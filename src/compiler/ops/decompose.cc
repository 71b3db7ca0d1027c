// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/decompose.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace flywheel::ops {
namespace {

uint16_t to_half(double value) {
  float f = static_cast<float>(value);
  uint16_t sign = static_cast<uint16_t>((std::bit_cast<uint32_t>(f) >> 16) & 0x8000);
  double magnitude = std::abs(static_cast<double>(f));
  if (std::isnan(f)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < std::ldexp(1, -14))
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  int exponent;
  std::frexp(magnitude, &exponent);                                        // magnitude = m * 2^exponent, m in [0.5, 1)
  double fraction = std::nearbyint(std::ldexp(magnitude, 11 - exponent));  // in [1024, 2048]
  int bits = ((exponent + 14) << 10) + static_cast<int>(fraction) - 1024;
  return static_cast<uint16_t>(sign | bits);
}

uint16_t to_bfloat(double value) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class T>
ir::ConstTensor filled(DType dtype, Dims dims, T value) {
  std::vector<T> values(static_cast<size_t>(element_count(dims)), value);
  return ir::ConstTensor::from<T>(dtype, std::move(dims), values);
}

}  // namespace

Result<ir::ConstTensor> splat_tensor(DType dtype, Dims dims, double value) {
  constexpr int64_t kMost = int64_t{1} << 28;
  std::optional<int64_t> count = checked_element_count(dims);
  if (!count || *count > kMost)
    return invalid_argument(fmt::format("a constant of {} elements is too large", dims_to_string(dims)));
  switch (dtype) {
    case DType::kFloat32: return filled(dtype, std::move(dims), static_cast<float>(value));
    case DType::kFloat64: return filled(dtype, std::move(dims), value);
    case DType::kFloat16: return filled(dtype, std::move(dims), to_half(value));
    case DType::kBFloat16: return filled(dtype, std::move(dims), to_bfloat(value));
    case DType::kBool: return filled(dtype, std::move(dims), static_cast<uint8_t>(value != 0 ? 1 : 0));
    default: break;
  }
  if (!(std::abs(value) < 0x1p62)) return invalid_argument(fmt::format("{} is no {}", value, dtype_name(dtype)));
  int64_t integer = static_cast<int64_t>(value);
  switch (dtype_size(dtype)) {
    case 1: return filled(dtype, std::move(dims), static_cast<uint8_t>(integer));
    case 2: return filled(dtype, std::move(dims), static_cast<uint16_t>(integer));
    case 4: return filled(dtype, std::move(dims), static_cast<uint32_t>(integer));
    default: return filled(dtype, std::move(dims), integer);
  }
}

Result<ir::Value*> Decomposer::add(std::string_view op, std::vector<ir::Value*> inputs, Attributes attributes) {
  FW_ASSIGN_OR_RETURN(ir::Node * made,
                      ops::add(graph_, op, std::move(inputs), std::move(attributes), node_, 1, node_->sources));
  return made->output();
}

Result<ir::Value*> Decomposer::reshape(ir::Value* x, SymShape shape) {
  if (x->shape == shape) return x;
  return add("Reshape", {x}, {{"shape", std::move(shape)}});
}

Result<ir::Value*> Decomposer::transpose(ir::Value* x, std::vector<int64_t> perm) {
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity = identity && perm[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return add("Transpose", {x}, {{"perm", std::move(perm)}});
}

ir::Value* Decomposer::scalar(DType dtype, double value) { return splat(dtype, {}, value); }

ir::Value* Decomposer::splat(DType dtype, Dims dims, double value) {
  Result<ir::ConstTensor> tensor = splat_tensor(dtype, dims, value);
  return graph_.add_constant("constant", tensor.is_ok() ? *std::move(tensor) : ir::ConstTensor::zeros(dtype, {}));
}

Status Decomposer::replace_with(ir::Value* value) {
  ir::Value* old = node_->output();
  for (const ir::Value* output : node_->outputs()) {
    if (output != old && (!output->uses().empty() || output->is_graph_output())) {
      return unsupported(fmt::format("{}: its output %{} is used", node_->describe(), output->name));
    }
  }
  if (!value->producer() || value->is_graph_output()) {  // a graph output needs a value of its own
    FW_ASSIGN_OR_RETURN(value, add("Identity", {value}));
  }
  graph_.replace_uses(old, value);
  std::string name = old->name;
  bool was_new = value->producer()->graph() == &graph_ && value->producer()->sources == node_->sources;
  graph_.erase(node_);
  if (was_new) graph_.rename(value, name);
  return Status::ok();
}

}  // namespace flywheel::ops
