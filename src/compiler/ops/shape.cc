// SPDX-License-Identifier: Apache-2.0
// Operators that give extents, or tensors made from extents alone.
//   Shape{start, end}  Size  ConstantOfShape{shape, value}  Range{start, step, count, dtype}
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_shape(ir::Node& node) {
  const SymShape& from = node.input(0)->shape;
  int64_t rank = static_cast<int64_t>(from.size());
  auto clamped = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? std::max(i, -rank) + rank : i, 0, rank); };
  int64_t start = clamped(node.int_or("start", 0)), end = clamped(node.int_or("end", rank));
  int64_t count = std::max<int64_t>(end - start, 0);
  for (const DimExpr& dim : from) {  // whatever its expression says of impossible inputs
    if (!known_nonnegative(node, dim)) node.graph()->assume(dim, DimExpr::max(dim, 0));
  }
  set_output(node, 0, DType::kInt64, {count});
  if (count > 0) set_elements(node, 0, {from.begin() + start, from.begin() + end});
  if (count == 0) set_elements(node, 0, {});
  return Status::ok();
}

Status infer_size(ir::Node& node) {
  set_output(node, 0, DType::kInt64, {});
  set_elements(node, 0, {product(node.input(0)->shape)});
  return Status::ok();
}

Status infer_constant_of_shape(ir::Node& node) {
  FW_ASSIGN_OR_RETURN(SymShape shape, require_dims(node, "shape"));
  const auto* value = node.find<ir::ConstTensor>("value");
  if (!value && node.attributes.contains("value"))
    return invalid_argument("attribute value is a number; expected a tensor");
  if (value && value->elements() != 1) {
    return invalid_argument(fmt::format("attribute value has {} elements; expected 1", value->elements()));
  }
  DType dtype = value ? value->dtype : DType::kFloat32;
  std::optional<int64_t> count = product(shape).constant();
  set_output(node, 0, dtype, std::move(shape));
  if (count && *count >= 0 && *count <= ir::kMaxKnownElements) {
    set_elements(node, 0, Elements(static_cast<size_t>(*count), DimExpr(value ? value->as_int(0) : 0)));
  }
  return Status::ok();
}

Status infer_range(ir::Node& node) {
  FW_ASSIGN_OR_RETURN(SymShape count, require_dims(node, "count"));
  if (count.size() != 1)
    return invalid_argument(fmt::format("attribute count has {} entries; expected 1", count.size()));
  FW_ASSIGN_OR_RETURN(DType dtype, dtype_attribute(node, "dtype", DType::kInt64));
  if (dtype != DType::kInt32 && dtype != DType::kInt64 && dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    return invalid_argument(fmt::format("attribute dtype is {}; expected i32, i64, f32 or f64", dtype_name(dtype)));
  }
  std::optional<SymShape> start = dims_attribute(node, "start"), step = dims_attribute(node, "step");
  if (!is_float(dtype) && !start && !node.find<double>("start")) start = SymShape{node.int_or("start", 0)};
  if (!is_float(dtype) && !step && !node.find<double>("step")) step = SymShape{node.int_or("step", 1)};
  if (is_float(dtype) != !start || is_float(dtype) != !step || (start && start->size() != 1) ||
      (step && step->size() != 1)) {
    return invalid_argument(fmt::format("attributes start and step must be {} for type {}",
                                        is_float(dtype) ? "numbers" : "dims with one entry", dtype_name(dtype)));
  }
  set_output(node, 0, dtype, {count[0]});
  std::optional<int64_t> n = count[0].constant();
  if (start && n && *n >= 0 && *n <= ir::kMaxKnownElements) {
    Elements elements;
    for (int64_t i = 0; i < *n; ++i) elements.push_back((*start)[0] + DimExpr(i) * (*step)[0]);
    set_elements(node, 0, std::move(elements));
  }
  return Status::ok();
}

}  // namespace

extern const Op kShape{"Shape", 1, 1, 1, 1, {"start", "end"}, infer_shape};
extern const Op kSize{"Size", 1, 1, 1, 1, {}, infer_size};
extern const Op kConstantOfShape{"ConstantOfShape", 0, 0, 1, 1, {"shape", "value"}, infer_constant_of_shape};
extern const Op kRange{"Range", 0, 0, 1, 1, {"start", "step", "count", "dtype"}, infer_range};

}  // namespace flywheel::ops
