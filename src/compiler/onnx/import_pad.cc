// SPDX-License-Identifier: Apache-2.0
// Pad: attributes before opset 11, operands since, with axes from 18 on. Called through import_list.inc.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

Status emit_pad(NodeContext& node, const SymShape& given, const std::optional<std::vector<int64_t>>& axes,
                ir::Attribute value) {
  const std::string mode = node.get_string("mode", "constant");
  static constexpr std::string_view kModes[] = {"constant", "edge", "reflect", "wrap"};
  if (std::find(std::begin(kModes), std::end(kModes), mode) == std::end(kModes)) {
    return invalid_argument(
        fmt::format("attribute 'mode' is '{}'; constant, edge, reflect and wrap are defined", mode));
  }
  const int rank = node.input(0)->rank();
  const size_t count = axes ? axes->size() : static_cast<size_t>(rank);
  if (given.size() != 2 * count) {
    return invalid_argument(fmt::format("it has {} pads; two for each of {} axes are expected", given.size(), count));
  }
  SymShape pads(2 * static_cast<size_t>(rank));
  for (size_t i = 0; i < count; ++i) {
    FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(axes ? (*axes)[i] : static_cast<int64_t>(i), rank));
    pads[axis] = given[i];
    pads[rank + axis] = given[count + i];
  }
  if (std::all_of(pads.begin(), pads.end(), [](const DimExpr& pad) { return pad == DimExpr(0); })) {
    node.set_output(0, node.input(0));
    return Status::ok();
  }
  return node.emit_outputs("Pad", {node.input(0)},
                           {{"pads", std::move(pads)}, {"mode", mode}, {"value", std::move(value)}});
}

}  // namespace

Status import_pad_attributes(NodeContext& node) {
  const auto pads = node.get_ints("pads");
  if (!pads) return invalid_argument("attribute 'pads' is missing");
  return emit_pad(node, SymShape(pads->begin(), pads->end()), std::nullopt, node.get_float("value", 0));
}

Status import_pad(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(SymShape pads, node.dims_operand(1, "pads"));
  ir::Attribute value = 0.0;
  if (node.input(2) != nullptr && node.input(2)->dtype == DType::kInt64) {  // a double would lose digits
    FW_ASSIGN_OR_RETURN(std::vector<int64_t> values, node.ints_operand(2, "constant_value"));
    if (values.size() > 1) return invalid_argument("its constant_value must be one value");
    value = values.empty() ? int64_t{0} : values[0];
  } else if (node.input(2) != nullptr) {
    FW_ASSIGN_OR_RETURN(std::vector<double> values, node.floats_operand(2, "constant_value"));
    if (values.size() > 1) return invalid_argument("its constant_value must be one value");
    if (!values.empty()) value = values[0];
  }
  std::optional<std::vector<int64_t>> axes;
  if (node.input(3) != nullptr) {
    FW_ASSIGN_OR_RETURN(axes, node.ints_operand(3, "axes"));
  }
  return emit_pad(node, pads, axes, std::move(value));
}

}  // namespace flywheel::onnx_import
