// SPDX-License-Identifier: Apache-2.0
// Constant becomes a constant of the graph; ConstantOfShape and Range get their extent as an attribute. Called through
// import_list.inc.
#include <fmt/format.h>

#include <cmath>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_constant(NodeContext& node) {
  for (const char* name : {"value_string", "value_strings"}) {
    if (node.has(name)) return unsupported("strings");
  }
  if (node.has("sparse_value")) return unsupported("a sparse value; store it as a dense tensor");
  int given = 0;
  for (const char* name : {"value", "value_float", "value_floats", "value_int", "value_ints"}) given += node.has(name);
  if (given != 1) return invalid_argument(fmt::format("it has {} values; one is expected", given));
  if (node.has("value")) {
    FW_ASSIGN_OR_RETURN(ir::ConstTensor tensor, node.get_tensor("value"));
    node.set_constant_output(std::move(tensor));
  } else if (node.has("value_float")) {
    node.set_constant_output(make_tensor(DType::kFloat32, {}, {node.get_float("value_float", 0)}));
  } else if (node.has("value_int")) {
    node.set_constant_output(make_int_tensor(DType::kInt64, {}, {node.get_int("value_int", 0)}));
  } else if (node.has("value_floats")) {
    const auto values = node.get_floats("value_floats").value_or(std::vector<double>());
    node.set_constant_output(make_tensor(DType::kFloat32, {static_cast<int64_t>(values.size())}, values));
  } else {
    const auto values = node.get_ints("value_ints").value_or(std::vector<int64_t>());
    node.set_constant_output(make_int_tensor(DType::kInt64, {static_cast<int64_t>(values.size())}, values));
  }
  return Status::ok();
}

Status import_constant_of_shape(NodeContext& node) {
  ir::ConstTensor value = make_tensor(DType::kFloat32, {1}, {0});
  if (node.has("value")) {
    FW_ASSIGN_OR_RETURN(value, node.get_tensor("value"));
    if (value.elements() != 1) {
      return invalid_argument(fmt::format("attribute 'value' has {} elements; one is expected", value.elements()));
    }
    value.dims = {1};
  }
  FW_ASSIGN_OR_RETURN(SymShape shape, node.dims_operand(0, "shape"));
  return node.emit_outputs("ConstantOfShape", {}, {{"shape", std::move(shape)}, {"value", std::move(value)}});
}

Status import_range(NodeContext& node) {
  node.ignore("stash_type");
  const DType dtype = node.input(0)->dtype;
  for (size_t i = 0; i < 3; ++i) {
    if (node.input(i)->dtype != dtype) return invalid_argument("start, limit and delta have different types");
  }
  static constexpr const char* kNames[] = {"start", "limit", "delta"};
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kInt32 && dtype != DType::kInt64) {
    return unsupported(fmt::format("a range of {}", dtype_name(dtype)));
  }
  if (is_float(dtype)) {
    double numbers[3];
    for (size_t i = 0; i < 3; ++i) {
      FW_ASSIGN_OR_RETURN(std::vector<double> values, node.floats_operand(i, kNames[i]));
      if (values.size() != 1) return invalid_argument(fmt::format("its {} must be one value", kNames[i]));
      numbers[i] = values[0];
    }
    const double count = std::max(0.0, std::ceil((numbers[1] - numbers[0]) / numbers[2]));
    if (!(count < 1e15)) return invalid_argument("its delta is 0, or it has too many elements");
    return node.emit_outputs("Range", {},
                             {{"start", numbers[0]},
                              {"step", numbers[2]},
                              {"count", SymShape{static_cast<int64_t>(count)}},
                              {"dtype", static_cast<int64_t>(dtype)}});
  }
  SymShape numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    FW_ASSIGN_OR_RETURN(numbers[i], node.dims_operand(i, kNames[i]));
    if (numbers[i].size() != 1) return invalid_argument(fmt::format("its {} must be one value", kNames[i]));
  }
  const auto delta = numbers[2][0].constant();
  if (!delta) return unsupported("its delta depends on the extent of an input; it must be a plain number");
  if (*delta == 0) return invalid_argument("its delta is 0");
  const DimExpr span = numbers[1][0] - numbers[0][0];
  const DimExpr count = *delta > 0 ? DimExpr::floor_div(span + DimExpr(*delta - 1), *delta)
                                   : DimExpr::floor_div(span + DimExpr(*delta) + DimExpr(1), *delta);
  return node.emit_outputs("Range", {},
                           {{"start", numbers[0]},
                            {"step", SymShape{*delta}},
                            {"count", SymShape{DimExpr::max(count, 0)}},
                            {"dtype", static_cast<int64_t>(dtype)}});
}

}  // namespace flywheel::onnx_import
