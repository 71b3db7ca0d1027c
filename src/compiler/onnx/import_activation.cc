// SPDX-License-Identifier: Apache-2.0
// Activations: those that are operators of ours with their attributes, and those made of simpler ones. Called through
// import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

// x * sigmoid(alpha * x), which the compiler knows as one operation when alpha is 1.
Status swish(NodeContext& node, ir::Value* x, double alpha) {
  ir::Value* scaled = x;
  if (alpha != 1) {
    FW_ASSIGN_OR_RETURN(scaled, node.emit("Mul", {x, node.scalar(x->dtype, alpha)}));
  }
  FW_ASSIGN_OR_RETURN(ir::Value * gate, node.emit("Sigmoid", {scaled}));
  return node.emit_outputs("Mul", {x, gate});
}

}  // namespace

Status import_leaky_relu(NodeContext& node) {
  return node.emit_outputs("LeakyRelu", node.inputs(), {{"alpha", node.get_float("alpha", 0.01F)}});
}

Status import_elu(NodeContext& node) {
  return node.emit_outputs("Elu", node.inputs(), {{"alpha", node.get_float("alpha", 1.0)}});
}

// gamma * elu(x): alpha * (exp(x) - 1) below 0.
Status import_selu(NodeContext& node) {
  const double alpha = node.get_float("alpha", 1.67326319217681884765625),
               gamma = node.get_float("gamma", 1.05070102214813232421875);
  FW_ASSIGN_OR_RETURN(ir::Value * elu, node.emit("Elu", node.inputs(), {{"alpha", alpha}}));
  return node.emit_outputs("Mul", {elu, node.scalar(elu->dtype, gamma)});
}

// alpha * elu(x / alpha).
Status import_celu(NodeContext& node) {
  const double alpha = node.get_float("alpha", 1.0);
  if (alpha == 0) return invalid_argument("attribute 'alpha' is 0");
  if (alpha == 1) return node.emit_outputs("Elu", node.inputs(), {{"alpha", 1.0}});
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(ir::Value * scaled, node.emit("Div", {x, node.scalar(x->dtype, alpha)}));
  FW_ASSIGN_OR_RETURN(ir::Value * elu, node.emit("Elu", {scaled}, {{"alpha", 1.0}}));
  return node.emit_outputs("Mul", {elu, node.scalar(x->dtype, alpha)});
}

Status import_hard_sigmoid(NodeContext& node) {
  const double alpha = node.get_float("alpha", 0.2F), beta = node.get_float("beta", 0.5);
  return node.emit_outputs("HardSigmoid", node.inputs(), {{"alpha", alpha}, {"beta", beta}});
}

Status import_gelu(NodeContext& node) {
  const std::string approximate = node.get_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return invalid_argument(fmt::format("attribute 'approximate' is '{}'; none and tanh are defined", approximate));
  }
  return node.emit_outputs("Gelu", node.inputs(), {{"approximate", approximate}});
}

Status import_swish(NodeContext& node) { return swish(node, node.input(0), node.get_float("alpha", 1.0)); }

Status import_thresholded_relu(NodeContext& node) {
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(ir::Value * above,
                      node.emit("Greater", {x, node.scalar(x->dtype, node.get_float("alpha", 1.0))}));
  return node.emit_outputs("Where", {above, x, node.scalar(x->dtype, 0)});
}

// x + bias below -lambd, x - bias above lambd, 0 between.
Status import_shrink(NodeContext& node) {
  const double bias = node.get_float("bias", 0), lambd = node.get_float("lambd", 0.5);
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(ir::Value * below, node.emit("Less", {x, node.scalar(x->dtype, -lambd)}));
  FW_ASSIGN_OR_RETURN(ir::Value * above, node.emit("Greater", {x, node.scalar(x->dtype, lambd)}));
  FW_ASSIGN_OR_RETURN(ir::Value * raised, node.emit("Add", {x, node.scalar(x->dtype, bias)}));
  FW_ASSIGN_OR_RETURN(ir::Value * lowered, node.emit("Sub", {x, node.scalar(x->dtype, bias)}));
  FW_ASSIGN_OR_RETURN(ir::Value * rest, node.emit("Where", {above, lowered, node.scalar(x->dtype, 0)}));
  return node.emit_outputs("Where", {below, raised, rest});
}

// com.microsoft: gelu(x + bias), its tanh form, and x * sigmoid(alpha * x).
Status import_bias_gelu(NodeContext& node) {
  ir::Value* x = node.input(0);
  if (node.input(1) != nullptr) {
    FW_ASSIGN_OR_RETURN(x, node.emit("Add", {x, node.input(1)}));
  }
  const std::string approximate = node.op_type() == "FastGelu" ? "tanh" : "none";
  return node.emit_outputs("Gelu", {x}, {{"approximate", approximate}});
}

Status import_quick_gelu(NodeContext& node) { return swish(node, node.input(0), node.get_float("alpha", 1.702F)); }

}  // namespace flywheel::onnx_import
