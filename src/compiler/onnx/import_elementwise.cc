// SPDX-License-Identifier: Apache-2.0
// Elementwise operators that are ours one to one, those that take any number of operands, and the few whose operands
// need a little care. Called through import_list.inc.
#include <fmt/format.h>

#include <limits>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_elementwise(NodeContext& node) { return node.emit_outputs(node.op_type(), node.inputs()); }

// Min, Max, Sum: one binary operation after the other, in the order of the operands.
Status import_variadic(NodeContext& node) {
  const std::string op = node.op_type() == "Sum" || node.op_type() == "Mean" ? "Add" : node.op_type();
  const size_t count = node.input_count();
  for (ir::Value* value : node.inputs()) {
    if (value == nullptr) return invalid_argument("one of its inputs is absent");
  }
  ir::Value* total = node.input(0);
  const bool is_mean = node.op_type() == "Mean";
  for (size_t i = 1; i < count; ++i) {
    if (i + 1 == count && !is_mean) return node.emit_outputs(op, {total, node.input(i)});
    FW_ASSIGN_OR_RETURN(total, node.emit(op, {total, node.input(i)}));
  }
  if (is_mean && count > 1) {
    return node.emit_outputs("Mul", {total, node.scalar(total->dtype, 1.0 / static_cast<double>(count))});
  }
  node.set_output(0, total);
  return Status::ok();
}

// The exponent may have another type than the base; the result has the base's.
Status import_pow(NodeContext& node) {
  ir::Value *base = node.input(0), *exponent = node.input(1);
  if (exponent->dtype != base->dtype) {
    if (!is_float(base->dtype)) {
      return unsupported(fmt::format("a base of type {} with an exponent of type {}; cast the base to f32",
                                     dtype_name(base->dtype), dtype_name(exponent->dtype)));
    }
    if (const auto known = node.known(*exponent); known && known->elements() == 1) {
      exponent = node.constant(make_tensor(base->dtype, known->dims, {known->as_double(0)}));
    } else {
      FW_ASSIGN_OR_RETURN(exponent, node.cast(exponent, base->dtype));
    }
  }
  return node.emit_outputs("Pow", {base, exponent});
}

Status import_mod(NodeContext& node) {
  const bool fmod = node.get_bool("fmod", false);
  if (!fmod && is_float(node.input(0)->dtype)) return invalid_argument("its inputs are floats; fmod=1 is needed then");
  return node.emit_outputs("Mod", node.inputs(), {{"fmod", int64_t{fmod}}});
}

Status import_is_inf(NodeContext& node) {
  const bool negative = node.get_bool("detect_negative", true), positive = node.get_bool("detect_positive", true);
  if (negative && positive) return node.emit_outputs("IsInf", node.inputs());
  ir::Value* x = node.input(0);
  if (!negative && !positive) {
    FW_ASSIGN_OR_RETURN(ir::Value * differs, node.emit("Less", {x, x}));  // false everywhere, for NaN too
    node.set_output(0, differs);
    return Status::ok();
  }
  const double infinity = std::numeric_limits<double>::infinity();
  return node.emit_outputs("Equal", {x, node.scalar(x->dtype, positive ? infinity : -infinity)});
}

// tan, sinh and cosh are rare: made of what there is.
Status import_trigonometry(NodeContext& node) {
  ir::Value* x = node.input(0);
  if (node.op_type() == "Tan") {
    FW_ASSIGN_OR_RETURN(ir::Value * sine, node.emit("Sin", {x}));
    FW_ASSIGN_OR_RETURN(ir::Value * cosine, node.emit("Cos", {x}));
    return node.emit_outputs("Div", {sine, cosine});
  }
  FW_ASSIGN_OR_RETURN(ir::Value * up, node.emit("Exp", {x}));
  FW_ASSIGN_OR_RETURN(ir::Value * negated, node.emit("Neg", {x}));
  FW_ASSIGN_OR_RETURN(ir::Value * down, node.emit("Exp", {negated}));
  FW_ASSIGN_OR_RETURN(ir::Value * sum, node.emit(node.op_type() == "Sinh" ? "Sub" : "Add", {up, down}));
  return node.emit_outputs("Mul", {sum, node.scalar(x->dtype, 0.5)});
}

}  // namespace flywheel::onnx_import
