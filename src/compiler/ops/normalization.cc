// SPDX-License-Identifier: Apache-2.0
// Normalizations.
//   LayerNormalization{axis = -1, epsilon = 1e-5}: x, scale, bias; outputs y, mean, 1 / deviation   RMSNormalization:
//   x, scale BatchNormalization{epsilon = 1e-5}: x, scale, bias, mean, variance (inference)
//   InstanceNormalization{epsilon = 1e-5}: x, scale [C], bias [C]   GroupNormalization{num_groups, epsilon}: x, scale
//   [C], bias [C] LpNormalization{axis = -1, p = 2}   MeanVarianceNormalization{axes = [0, 2, 3]}
// The last five decompose.
#include <fmt/format.h>

#include "compiler/ops/decompose.h"
#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_layer_norm(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", -1), x.shape.size()));
  SymShape normalized(x.shape.begin() + static_cast<ptrdiff_t>(axis), x.shape.end());
  for (size_t i = 1; i < node.inputs().size(); ++i) {
    if (!node.input(i)) continue;
    FW_RETURN_IF_ERROR(
        require_broadcasts_to(node, node.input(i)->shape, normalized, i == 1 ? "the scale" : "the bias"));
  }
  set_output(node, 0, x.dtype, x.shape);
  SymShape statistics = x.shape;
  std::fill(statistics.begin() + static_cast<ptrdiff_t>(axis), statistics.end(), DimExpr(1));
  for (size_t i = 1; i < node.outputs().size(); ++i) set_output(node, i, x.dtype, statistics);
  return Status::ok();
}

Status check_per_channel(const ir::Node& node, size_t first, size_t last) {
  FW_RETURN_IF_ERROR(require_rank(node, 0, 2, kMaxRank));
  FW_RETURN_IF_ERROR(require_float(node, 0));
  for (size_t i = first; i < last; ++i) {
    FW_RETURN_IF_ERROR(require_rank(node, i, 1, 1));
    FW_RETURN_IF_ERROR(require_equal(node, node.input(i)->shape[0], node.input(0)->shape[1],
                                     fmt::format("operand {} and the channels", i)));
  }
  set_output(const_cast<ir::Node&>(node), 0, node.input(0)->dtype, node.input(0)->shape);
  return Status::ok();
}

Status infer_batch_norm(ir::Node& node) { return check_per_channel(node, 1, 5); }
Status infer_instance_norm(ir::Node& node) { return check_per_channel(node, 1, 3); }

Status infer_group_norm(ir::Node& node) {
  int64_t groups = node.int_or("num_groups", 0);
  FW_RETURN_IF_ERROR(check_per_channel(node, 1, 3));
  std::optional<int64_t> channels = node.input(0)->shape[1].constant();
  if (groups < 1 || (channels && *channels % groups != 0)) {
    return invalid_argument(
        fmt::format("attribute num_groups is {} for {} channels", groups, node.input(0)->shape[1].to_string()));
  }
  return Status::ok();
}

Status infer_lp_norm(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", -1), node.input(0)->shape.size()));
  (void)axis;
  int64_t p = node.int_or("p", 2);
  if (p != 1 && p != 2) return invalid_argument(fmt::format("attribute p is {}; expected 1 or 2", p));
  set_output(node, 0, node.input(0)->dtype, node.input(0)->shape);
  return Status::ok();
}

Status infer_mean_variance(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_ASSIGN_OR_RETURN(std::vector<size_t> axes, axes_in(node.ints_or("axes", {0, 2, 3}), node.input(0)->shape.size()));
  (void)axes;
  set_output(node, 0, node.input(0)->dtype, node.input(0)->shape);
  return Status::ok();
}

// [C] as [C, 1, ...], to broadcast against dim 1 of x.
Result<ir::Value*> per_channel(Decomposer& d, ir::Value* v, const ir::Value& x) {
  SymShape shape(x.shape.size() - 1, DimExpr(1));
  shape[0] = x.shape[1];
  return d.reshape(v, shape);
}

Status decompose_batch_norm(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  ir::Value *x = node->input(0), *mean = node->input(3);
  ir::Value* epsilon = d.scalar(node->input(4)->dtype, node->float_or("epsilon", 1e-5));
  FW_ASSIGN_OR_RETURN(ir::Value * spread, d.add("Add", {node->input(4), epsilon}));
  FW_ASSIGN_OR_RETURN(ir::Value * deviation, d.add("Sqrt", {spread}));
  FW_ASSIGN_OR_RETURN(ir::Value * factor, d.add("Div", {node->input(1), deviation}));
  FW_ASSIGN_OR_RETURN(ir::Value * shift, d.add("Mul", {mean, factor}));
  FW_ASSIGN_OR_RETURN(shift, d.add("Sub", {node->input(2), shift}));
  FW_ASSIGN_OR_RETURN(factor, per_channel(d, factor, *x));
  FW_ASSIGN_OR_RETURN(shift, per_channel(d, shift, *x));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add("Mul", {x, factor}));
  FW_ASSIGN_OR_RETURN(y, d.add("Add", {y, shift}));
  return d.replace_with(y);
}

// (x - mean) / sqrt(variance + epsilon) over the axes.
Result<ir::Value*> standardized(Decomposer& d, ir::Value* x, std::vector<int64_t> axes, double epsilon,
                                bool epsilon_inside) {
  FW_ASSIGN_OR_RETURN(ir::Value * mean, d.add("ReduceMean", {x}, {{"axes", axes}, {"keepdims", int64_t{1}}}));
  FW_ASSIGN_OR_RETURN(ir::Value * centered, d.add("Sub", {x, mean}));
  FW_ASSIGN_OR_RETURN(ir::Value * square, d.add("Mul", {centered, centered}));
  FW_ASSIGN_OR_RETURN(ir::Value * spread, d.add("ReduceMean", {square}, {{"axes", axes}, {"keepdims", int64_t{1}}}));
  ir::Value* small = d.scalar(x->dtype, epsilon);
  if (epsilon_inside) {
    FW_ASSIGN_OR_RETURN(spread, d.add("Add", {spread, small}));
  }
  FW_ASSIGN_OR_RETURN(ir::Value * deviation, d.add("Sqrt", {spread}));
  if (!epsilon_inside) {
    FW_ASSIGN_OR_RETURN(deviation, d.add("Add", {deviation, small}));
  }
  return d.add("Div", {centered, deviation});
}

Status scale_and_shift(Decomposer& d, const ir::Node& node, ir::Value* y) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(ir::Value * scale, per_channel(d, node.input(1), x));
  FW_ASSIGN_OR_RETURN(ir::Value * bias, per_channel(d, node.input(2), x));
  FW_ASSIGN_OR_RETURN(y, d.add("Mul", {y, scale}));
  FW_ASSIGN_OR_RETURN(y, d.add("Add", {y, bias}));
  return d.replace_with(y);
}

Status decompose_instance_norm(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  if (node->input(0)->rank() < 3) return unsupported("it normalizes over no spatial dim");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < node->input(0)->rank(); ++i) axes.push_back(i);
  FW_ASSIGN_OR_RETURN(ir::Value * y, standardized(d, node->input(0), axes, node->float_or("epsilon", 1e-5), true));
  return scale_and_shift(d, *node, y);
}

Status decompose_group_norm(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  ir::Value* x = node->input(0);
  DimExpr groups(node->int_or("num_groups", 1));
  FW_ASSIGN_OR_RETURN(ir::Value * y,
                      d.reshape(x, {x->shape[0], groups, DimExpr::floor_div(product(x->shape, 1), groups)}));
  FW_ASSIGN_OR_RETURN(y, standardized(d, y, {2}, node->float_or("epsilon", 1e-5), true));
  FW_ASSIGN_OR_RETURN(y, d.reshape(y, x->shape));
  return scale_and_shift(d, *node, y);
}

Status decompose_lp_norm(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  ir::Value* x = node->input(0);
  std::string_view reduction = node->int_or("p", 2) == 1 ? "ReduceL1" : "ReduceL2";
  FW_ASSIGN_OR_RETURN(
      ir::Value * norm,
      d.add(reduction, {x}, {{"axes", std::vector<int64_t>{node->int_or("axis", -1)}}, {"keepdims", int64_t{1}}}));
  // A row of zeros stays zero.
  ir::Value* least = d.scalar(x->dtype, x->dtype == DType::kFloat16 ? 6.1035e-5 : 1.1754944e-38);
  FW_ASSIGN_OR_RETURN(norm, d.add("Max", {norm, least}));
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add("Div", {x, norm}));
  return d.replace_with(y);
}

Status decompose_mean_variance(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  FW_ASSIGN_OR_RETURN(ir::Value * y, standardized(d, node->input(0), node->ints_or("axes", {0, 2, 3}), 1e-9, false));
  return d.replace_with(y);
}

}  // namespace

extern const Op kLayerNormalization{"LayerNormalization", 2, 3, 1, 3, {"axis", "epsilon"}, infer_layer_norm};
extern const Op kRMSNormalization{"RMSNormalization", 2, 2, 1, 1, {"axis", "epsilon"}, infer_layer_norm};
extern const Op kBatchNormalization{"BatchNormalization", 5, 5, 1, 1, {"epsilon"}, infer_batch_norm, nullptr, true,
                                    decompose_batch_norm};
extern const Op kInstanceNormalization{
    "InstanceNormalization", 3, 3, 1, 1, {"epsilon"}, infer_instance_norm, nullptr, true, decompose_instance_norm};
extern const Op kGroupNormalization{
    "GroupNormalization", 3, 3, 1, 1, {"num_groups", "epsilon"}, infer_group_norm, nullptr, true, decompose_group_norm};
extern const Op kLpNormalization{"LpNormalization", 1, 1, 1, 1, {"axis", "p"}, infer_lp_norm, nullptr, true,
                                 decompose_lp_norm};
extern const Op kMeanVarianceNormalization{
    "MeanVarianceNormalization", 1, 1, 1, 1, {"axes"}, infer_mean_variance, nullptr, true, decompose_mean_variance};

}  // namespace flywheel::ops
