// SPDX-License-Identifier: Apache-2.0
// Normalizations: BatchNormalization, LayerNormalization and RMSNormalization are operators of ours; the others are
// made of simpler ones, which the passes fuse again. Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

Result<ir::Value*> reshape(NodeContext& node, ir::Value* x, SymShape shape) {
  return node.emit("Reshape", {x}, {{"shape", std::move(shape)}});
}

Status check_stash_type(NodeContext& node) {
  const int64_t type = node.get_int("stash_type", 1);
  return type == 1 ? Status::ok()
                   : unsupported(fmt::format("attribute 'stash_type' is {}; 1 (f32) is supported", type));
}

Status expect_image(const NodeContext& node) {
  if (node.input(0)->rank() >= 3) return Status::ok();
  return invalid_argument(fmt::format("its input has {} dims; at least 3 are expected", node.input(0)->rank()));
}

}  // namespace

Status import_batch_normalization(NodeContext& node) {
  node.ignore("momentum");
  if (node.opset() < 9 && !node.get_bool("spatial", true)) return unsupported("attribute 'spatial' is 0");
  if (node.opset() >= 14 && node.get_bool("training_mode", false)) {
    return unsupported("attribute 'training_mode' is set; export the model for inference");
  }
  return node.emit_outputs("BatchNormalization", node.inputs(), {{"epsilon", node.get_float("epsilon", 1e-5F)}});
}

Status import_layer_normalization(NodeContext& node) {
  FW_RETURN_IF_ERROR(check_stash_type(node));
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", -1), node.input(0)->rank()));
  return node.emit_outputs(node.op_type(), node.inputs(),
                           {{"axis", axis}, {"epsilon", node.get_float("epsilon", 1e-5F)}});
}

Status import_instance_normalization(NodeContext& node) {
  FW_RETURN_IF_ERROR(expect_image(node));
  return node.emit_outputs("InstanceNormalization", node.inputs(), {{"epsilon", node.get_float("epsilon", 1e-5F)}});
}

// Scale and bias are given for each channel; before opset 21 for each group, which is spread over its channels here.
Status import_group_normalization(NodeContext& node) {
  FW_RETURN_IF_ERROR(expect_image(node));
  const int64_t groups = node.require_int("num_groups");
  std::vector<ir::Value*> operands = node.inputs();
  if (node.opset() < 21) {
    const auto channels = operands[0]->shape[1].constant();
    if (!channels) return unsupported("its number of channels depends on an input");
    if (groups < 1 || *channels % groups != 0) {
      return invalid_argument(fmt::format("{} channels do not divide into {} groups", *channels, groups));
    }
    for (size_t i = 1; i < 3; ++i) {
      FW_ASSIGN_OR_RETURN(ir::Value * column, reshape(node, operands[i], {groups, 1}));
      FW_ASSIGN_OR_RETURN(ir::Value * spread,
                          node.emit("Expand", {column}, {{"shape", SymShape{groups, *channels / groups}}}));
      FW_ASSIGN_OR_RETURN(operands[i], reshape(node, spread, {*channels}));
    }
  } else {
    FW_RETURN_IF_ERROR(check_stash_type(node));
  }
  return node.emit_outputs("GroupNormalization", std::move(operands),
                           {{"num_groups", groups}, {"epsilon", node.get_float("epsilon", 1e-5F)}});
}

// x / (bias + alpha / size * sum of the squares of `size` channels around) ^ beta. The mean over a window of channels
// is an average pool of the squares with the channels laid out as an image's height.
Status import_lrn(NodeContext& node) {
  FW_RETURN_IF_ERROR(expect_image(node));
  const double alpha = node.get_float("alpha", 1e-4F), beta = node.get_float("beta", 0.75),
               bias = node.get_float("bias", 1.0);
  const int64_t size = node.require_int("size");
  if (size < 1 || size > (1 << 20)) return invalid_argument(fmt::format("attribute 'size' is {}", size));
  ir::Value* x = node.input(0);
  DimExpr area(1);
  for (int i = 2; i < x->rank(); ++i) area = area * x->shape[i];
  FW_ASSIGN_OR_RETURN(ir::Value * squares, node.emit("Mul", {x, x}));
  FW_ASSIGN_OR_RETURN(ir::Value * image, reshape(node, squares, {x->shape[0], 1, x->shape[1], area}));
  const int64_t before = (size - 1) / 2, after = size - 1 - before;
  FW_ASSIGN_OR_RETURN(ir::Value * means, node.emit("AveragePool", {image},
                                                   {{"kernel_shape", std::vector<int64_t>{size, 1}},
                                                    {"strides", std::vector<int64_t>{1, 1}},
                                                    {"pads", std::vector<int64_t>{before, 0, after, 0}},
                                                    {"count_include_pad", int64_t{1}}}));
  FW_ASSIGN_OR_RETURN(ir::Value * back, reshape(node, means, x->shape));
  FW_ASSIGN_OR_RETURN(ir::Value * scaled, node.emit("Mul", {back, node.scalar(x->dtype, alpha)}));
  FW_ASSIGN_OR_RETURN(ir::Value * shifted, node.emit("Add", {scaled, node.scalar(x->dtype, bias)}));
  FW_ASSIGN_OR_RETURN(ir::Value * divisor, node.emit("Pow", {shifted, node.scalar(x->dtype, beta)}));
  return node.emit_outputs("Div", {x, divisor});
}

Status import_lp_normalization(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", -1), node.input(0)->rank()));
  return node.emit_outputs("LpNormalization", node.inputs(), {{"axis", axis}, {"p", node.get_int("p", 2)}});
}

Status import_mean_variance_normalization(NodeContext& node) {
  auto axes = node.get_ints("axes").value_or(std::vector<int64_t>{0, 2, 3});
  for (int64_t& axis : axes) {
    FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, node.input(0)->rank(), "an axis of 'axes'"));
  }
  return node.emit_outputs("MeanVarianceNormalization", node.inputs(), {{"axes", std::move(axes)}});
}

}  // namespace flywheel::onnx_import
