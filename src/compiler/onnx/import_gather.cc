// SPDX-License-Identifier: Apache-2.0
// The gathering and scattering operators. Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_gather(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", 0), node.input(0)->rank()));
  return node.emit_outputs(node.op_type(), node.inputs(), {{"axis", axis}});
}

Status import_gather_nd(NodeContext& node) {
  const int64_t batch_dims = node.opset() >= 12 ? node.get_int("batch_dims", 0) : 0;
  return node.emit_outputs("GatherND", node.inputs(), {{"batch_dims", batch_dims}});
}

Status import_scatter_nd(NodeContext& node) {
  const std::string reduction = node.opset() >= 16 ? node.get_string("reduction", "none") : "none";
  return node.emit_outputs("ScatterND", node.inputs(), {{"reduction", reduction}});
}

Status import_scatter_elements(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", 0), node.input(0)->rank()));
  const std::string reduction = node.opset() >= 16 ? node.get_string("reduction", "none") : "none";
  return node.emit_outputs("ScatterElements", node.inputs(), {{"axis", axis}, {"reduction", reduction}});
}

}  // namespace flywheel::onnx_import
