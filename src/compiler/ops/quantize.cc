// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear{axis = 1, dtype}: x, scale, zero point -> saturate(round(x / scale) + zero), in the zero point's type,
// or `dtype` (u8 by default). DequantizeLinear{axis = 1}: (x - zero) * scale in the scale's type. Scale and zero point
// are one number, or one for each place of `axis`. Both decompose, which computes them exactly as defined; passes that
// fuse them run before.
#include <fmt/format.h>

#include <limits>

#include "compiler/ops/decompose.h"
#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status check_scale(const ir::Node& node) {
  const ir::Value &x = *node.input(0), &scale = *node.input(1);
  FW_RETURN_IF_ERROR(require_float(node, 1));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 0, 1));
  if (scale.rank() == 1 && scale.shape[0] != DimExpr(1)) {
    FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 1), x.shape.size()));
    FW_RETURN_IF_ERROR(
        require_equal(node, scale.shape[0], x.shape[axis], fmt::format("the scale's extent and dim {}", axis)));
  }
  const ir::Value* zero = node.input(2);
  if (zero && zero->shape != scale.shape) {
    return invalid_argument(fmt::format("the scale has shape {} and the zero point {}",
                                        sym_shape_to_string(scale.shape), sym_shape_to_string(zero->shape)));
  }
  return Status::ok();
}

// The range of a type that tensors are quantized to; kInvalidArgument for others.
Result<std::pair<double, double>> quantized_range(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return std::pair(-128.0, 127.0);
    case DType::kUInt8: return std::pair(0.0, 255.0);
    case DType::kInt16: return std::pair(-32768.0, 32767.0);
    case DType::kUInt16: return std::pair(0.0, 65535.0);
    default: return invalid_argument(fmt::format("quantized type {}; expected i8, u8, i16 or u16", dtype_name(dtype)));
  }
}

Status infer_quantize(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_RETURN_IF_ERROR(require_same_dtype(node, 0, 2));
  FW_RETURN_IF_ERROR(check_scale(node));
  FW_ASSIGN_OR_RETURN(DType dtype,
                      dtype_attribute(node, "dtype", node.input(2) ? node.input(2)->dtype : DType::kUInt8));
  if (node.input(2) && node.input(2)->dtype != dtype) {
    return invalid_argument(
        fmt::format("the zero point is {} and dtype {}", dtype_name(node.input(2)->dtype), dtype_name(dtype)));
  }
  FW_ASSIGN_OR_RETURN(auto range, quantized_range(dtype));
  (void)range;
  set_output(node, 0, dtype, node.input(0)->shape);
  return Status::ok();
}

Status infer_dequantize(ir::Node& node) {
  FW_RETURN_IF_ERROR(check_scale(node));
  DType dtype = node.input(0)->dtype;
  if (dtype != DType::kInt32) {
    FW_ASSIGN_OR_RETURN(auto range, quantized_range(dtype));
    (void)range;
  }
  if (node.input(2) && node.input(2)->dtype != dtype) {
    return invalid_argument(
        fmt::format("x is {} and the zero point {}", dtype_name(dtype), dtype_name(node.input(2)->dtype)));
  }
  set_output(node, 0, node.input(1)->dtype, node.input(0)->shape);
  return Status::ok();
}

// One number for each place of the axis, shaped to broadcast against x.
Result<ir::Value*> along_axis(Decomposer& d, const ir::Node& node, ir::Value* v) {
  const SymShape& x = node.input(0)->shape;
  if (v->rank() == 0) return v;
  if (v->shape[0] == DimExpr(1)) return d.reshape(v, {});
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 1), x.size()));
  SymShape shape(x.size() - axis, DimExpr(1));
  shape[0] = v->shape[0];
  return d.reshape(v, std::move(shape));
}

Result<ir::Value*> zero_point(Decomposer& d, const ir::Node& node, DType as) {
  FW_ASSIGN_OR_RETURN(ir::Value * zero, along_axis(d, node, node.input(2)));
  return d.add("Cast", {zero}, {{"to", static_cast<int64_t>(as)}});
}

Status decompose_quantize(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  DType type = node->input(0)->dtype, to = node->output()->dtype;
  FW_ASSIGN_OR_RETURN(auto range, quantized_range(to));
  FW_ASSIGN_OR_RETURN(ir::Value * scale, along_axis(d, *node, node->input(1)));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add("Div", {node->input(0), scale}));
  FW_ASSIGN_OR_RETURN(y, d.add("Round", {y}));
  if (node->input(2)) {
    FW_ASSIGN_OR_RETURN(ir::Value * zero, zero_point(d, *node, type));
    FW_ASSIGN_OR_RETURN(y, d.add("Add", {y, zero}));
  }
  FW_ASSIGN_OR_RETURN(y, d.add("Clip", {y}, {{"min", range.first}, {"max", range.second}}));
  FW_ASSIGN_OR_RETURN(y, d.add("Cast", {y}, {{"to", static_cast<int64_t>(to)}}));
  return d.replace_with(y);
}

Status decompose_dequantize(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  DType type = node->output()->dtype;
  FW_ASSIGN_OR_RETURN(ir::Value * scale, along_axis(d, *node, node->input(1)));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add("Cast", {node->input(0)}, {{"to", static_cast<int64_t>(type)}}));
  if (node->input(2)) {
    FW_ASSIGN_OR_RETURN(ir::Value * zero, zero_point(d, *node, type));
    FW_ASSIGN_OR_RETURN(y, d.add("Sub", {y, zero}));
  }
  FW_ASSIGN_OR_RETURN(y, d.add("Mul", {y, scale}));
  return d.replace_with(y);
}

}  // namespace

extern const Op kQuantizeLinear{"QuantizeLinear",  2, 3, 1, 1, {"axis", "dtype"}, infer_quantize, nullptr, true,
                                decompose_quantize};
extern const Op kDequantizeLinear{"DequantizeLinear",  2, 3, 1, 1, {"axis"}, infer_dequantize, nullptr, true,
                                  decompose_dequantize};

}  // namespace flywheel::ops
