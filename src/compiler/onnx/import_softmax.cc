// SPDX-License-Identifier: Apache-2.0
// Softmax, LogSoftmax, Hardmax. Before opset 13 they work on the input flattened to two dims at the axis. Called
// through import_list.inc.
#include <algorithm>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
Status import_softmax(NodeContext& node) {
  ir::Value* x = node.input(0);
  const bool flattens = node.opset() < 13;
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", flattens ? 1 : -1), x->rank()));
  const bool is_last =
      std::all_of(x->shape.begin() + axis + 1, x->shape.end(), [](const DimExpr& d) { return d == DimExpr(1); });
  if (!flattens || is_last) return node.emit_outputs(node.op_type(), {x}, {{"axis", axis}});
  DimExpr rows(1), columns(1);
  for (int i = 0; i < x->rank(); ++i) (i < axis ? rows : columns) = (i < axis ? rows : columns) * x->shape[i];
  FW_ASSIGN_OR_RETURN(ir::Value * flat, node.emit("Reshape", {x}, {{"shape", SymShape{rows, columns}}}));
  FW_ASSIGN_OR_RETURN(ir::Value * y, node.emit(node.op_type(), {flat}, {{"axis", int64_t{1}}}));
  return node.emit_outputs("Reshape", {y}, {{"shape", x->shape}});
}

}  // namespace flywheel::onnx_import
