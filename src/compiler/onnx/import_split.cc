// SPDX-License-Identifier: Apache-2.0
// Split: the parts' extents are an attribute before opset 13 and an operand since; without them the axis is divided.
// Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_split(NodeContext& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", 0), x.rank()));
  const auto count = static_cast<int64_t>(node.output_count());
  const DimExpr& extent = x.shape[axis];
  SymShape parts;
  if (node.opset() < 13) {
    if (const auto split = node.get_ints("split")) parts.assign(split->begin(), split->end());
  } else if (node.input(1) != nullptr) {
    FW_ASSIGN_OR_RETURN(parts, node.dims_operand(1, "split"));
    if (node.has("num_outputs")) return invalid_argument("both 'split' and 'num_outputs' are given");
  }
  if (node.opset() >= 18 && node.has("num_outputs") && node.get_int("num_outputs", 0) != count) {
    return invalid_argument(
        fmt::format("attribute 'num_outputs' is {} but it has {} outputs", node.get_int("num_outputs", 0), count));
  }
  if (parts.empty()) {
    const auto known = extent.constant();
    if (node.opset() < 18 && known && *known % count != 0) {
      return invalid_argument(fmt::format("an extent of {} cannot be split into {} equal parts", *known, count));
    }
    const DimExpr part =
        node.opset() < 18 ? DimExpr::floor_div(extent, count) : DimExpr::floor_div(extent + DimExpr(count - 1), count);
    parts.assign(count - 1, part);
    parts.push_back(extent - part * DimExpr(count - 1));  // the same, or what is left from opset 18 on
  }
  if (static_cast<int64_t>(parts.size()) != count) {
    return invalid_argument(fmt::format("it has {} parts but {} outputs", parts.size(), count));
  }
  for (const DimExpr& part : parts) {
    if (part.constant().value_or(0) < 0)
      return invalid_argument(fmt::format("a part has the extent {}", part.to_string()));
  }
  return node.emit_outputs("Split", {node.input(0)}, {{"axis", axis}, {"split", std::move(parts)}}, -1);
}

}  // namespace flywheel::onnx_import
