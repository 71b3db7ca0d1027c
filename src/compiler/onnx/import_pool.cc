// SPDX-License-Identifier: Apache-2.0
// MaxPool, AveragePool and their global forms. Called through import_list.inc.
#include "compiler/onnx/import_functions.h"
#include "compiler/onnx/window.h"

namespace flywheel::onnx_import {
namespace {

Result<Attributes> pool_attributes(NodeContext& node, bool has_dilations) {
  FW_ASSIGN_OR_RETURN(Window window, read_window(node, {}, has_dilations));
  Attributes attributes{{"kernel_shape", window.kernel}, {"strides", window.strides}, {"dilations", window.dilations}};
  if (window.auto_pad == "NOTSET") {
    attributes.emplace("pads", window.pads);
  } else {
    attributes.emplace("auto_pad", window.auto_pad);
  }
  // With ceil_mode the last window may lie outside; SAME has no such window.
  if (node.opset() >= 10) attributes.emplace("ceil_mode", int64_t{node.get_bool("ceil_mode", false)});
  return attributes;
}

}  // namespace

Status import_max_pool(NodeContext& node) {
  if (node.opset() >= 8) node.ignore("storage_order");  // orders the indices, which we do not give
  FW_ASSIGN_OR_RETURN(Attributes attributes, pool_attributes(node, node.opset() >= 10));
  return node.emit_outputs("MaxPool", node.inputs(), std::move(attributes));
}

Status import_average_pool(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(Attributes attributes, pool_attributes(node, node.opset() >= 19));
  attributes.emplace("count_include_pad", int64_t{node.get_bool("count_include_pad", false)});
  return node.emit_outputs("AveragePool", node.inputs(), std::move(attributes));
}

Status import_global_pool(NodeContext& node) { return node.emit_outputs(node.op_type(), node.inputs()); }

}  // namespace flywheel::onnx_import
