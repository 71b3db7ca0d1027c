// SPDX-License-Identifier: Apache-2.0
// Along one axis (opset 13's meaning; the importer reshapes for older ones).
//   Softmax, LogSoftmax{axis = -1}  Hardmax{axis = -1}: 1 at the first largest element, else 0
#include "compiler/ops/decompose.h"
#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_softmax(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", -1), node.input(0)->shape.size()));
  (void)axis;
  set_output(node, 0, node.input(0)->dtype, node.input(0)->shape);
  return Status::ok();
}

Status decompose_hardmax(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  ir::Value* x = node->input(0);
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node->int_or("axis", -1), x->shape.size()));
  FW_ASSIGN_OR_RETURN(ir::Value * largest,
                      d.add("ArgMax", {x}, {{"axis", static_cast<int64_t>(axis)}, {"keepdims", int64_t{1}}}));
  FW_ASSIGN_OR_RETURN(
      ir::Value * places,
      d.add("Range", {}, {{"start", SymShape{0}}, {"step", SymShape{1}}, {"count", SymShape{x->shape[axis]}}}));
  SymShape column(x->shape.size() - axis, DimExpr(1));
  column[0] = x->shape[axis];
  FW_ASSIGN_OR_RETURN(places, d.reshape(places, column));
  FW_ASSIGN_OR_RETURN(ir::Value * is_largest, d.add("Equal", {largest, places}));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add("Cast", {is_largest}, {{"to", static_cast<int64_t>(x->dtype)}}));
  return d.replace_with(y);
}

}  // namespace

extern const Op kSoftmax{"Softmax", 1, 1, 1, 1, {"axis"}, infer_softmax};
extern const Op kLogSoftmax{"LogSoftmax", 1, 1, 1, 1, {"axis"}, infer_softmax};
extern const Op kHardmax{"Hardmax", 1, 1, 1, 1, {"axis"}, infer_softmax, nullptr, true, decompose_hardmax};

}  // namespace flywheel::ops
