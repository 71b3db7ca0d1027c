// SPDX-License-Identifier: Apache-2.0
// Clip, whose bounds are attributes before opset 11 and operands since. Called through import_list.inc.
#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_clip_attributes(NodeContext& node) {
  Attributes bounds;
  for (const char* name : {"min", "max"}) {
    const double value = node.get_float(name, 0);
    if (node.has(name)) bounds.emplace(name, value);
  }
  if (bounds.empty()) {
    node.set_output(0, node.input(0));
    return Status::ok();
  }
  return node.emit_outputs("Clip", node.inputs(), std::move(bounds));
}

Status import_clip(NodeContext& node) {
  ir::Value *x = node.input(0), *bounds[] = {node.input(1), node.input(2)};
  Attributes attributes;
  bool all_known = true;
  for (int i = 0; i < 2; ++i) {
    if (bounds[i] == nullptr) continue;
    if (bounds[i]->dtype != x->dtype) return invalid_argument("a bound has another type than the input");
    if (const auto known = node.known(*bounds[i]); known && known->elements() == 1) {
      attributes.emplace(i == 0 ? "min" : "max", known->as_double(0));
    } else {
      all_known = false;
    }
  }
  if (all_known && !attributes.empty()) return node.emit_outputs("Clip", {x}, std::move(attributes));
  // The lower bound comes first: where min > max the result is max.
  if (bounds[0] != nullptr) {
    FW_ASSIGN_OR_RETURN(x, node.emit("Max", {x, bounds[0]}));
  }
  if (bounds[1] != nullptr) return node.emit_outputs("Min", {x, bounds[1]});
  node.set_output(0, x);
  return Status::ok();
}

}  // namespace flywheel::onnx_import
