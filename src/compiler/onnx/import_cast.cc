// SPDX-License-Identifier: Apache-2.0
// Cast and CastLike. Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

Status cast_to(NodeContext& node, DType dtype) {
  ir::Value* x = node.input(0);
  if (x->dtype == dtype) {
    node.set_output(0, x);
    return Status::ok();
  }
  FW_RETURN_IF_ERROR(node.emit_outputs("Cast", {x}, {{"to", static_cast<int64_t>(dtype)}}));
  // A shape that was computed in floating point: its integers are needed as such, and inference does not follow floats.
  if (is_float(x->dtype) && !is_float(dtype)) {
    if (const auto known = node.known(*node.output(0))) node.set_output(0, node.constant(*known));
  }
  return Status::ok();
}

}  // namespace

Status import_cast(NodeContext& node) {
  node.ignore("saturate");  // both concern float8 only
  node.ignore("round_mode");
  const int64_t to = node.require_int("to");
  const auto dtype = to_dtype(to);
  if (!dtype) return unsupported(fmt::format("a cast to {}", tensor_type_name(to)));
  return cast_to(node, *dtype);
}

Status import_cast_like(NodeContext& node) {
  node.ignore("saturate");
  node.ignore("round_mode");
  return cast_to(node, node.input(1)->dtype);
}

}  // namespace flywheel::onnx_import
