// SPDX-License-Identifier: Apache-2.0
// Pools over the spatial dims.
//   MaxPool, AveragePool{kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, layout}  AveragePool also
//   {count_include_pad} GlobalAveragePool, GlobalMaxPool: reductions
#include <fmt/format.h>

#include "compiler/ops/decompose.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/window.h"

namespace flywheel::ops {
namespace {

Status infer_pool(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(Window window, read_window(node, {}));
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    FW_ASSIGN_OR_RETURN(int64_t reach, kernel_extent(window, i));
    if (window.pads_begin[i] >= reach || window.pads_end[i] >= reach) {
      return invalid_argument(fmt::format("pads of {} and {} at spatial dim {} are not less than the kernel's {}",
                                          window.pads_begin[i], window.pads_end[i], i, reach));
    }
  }
  FW_ASSIGN_OR_RETURN(SymShape spatial, window_extents(window, x.shape, node.int_or("ceil_mode", 0) != 0));
  SymShape shape = in_layout(window, x.shape[0], x.shape[window.channel_dim], spatial);
  set_output(node, 0, x.dtype, shape);
  set_output(node, 1, DType::kInt64, std::move(shape));
  return Status::ok();
}

Status infer_average_pool(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_float(node, 0));
  return infer_pool(node);
}

Status infer_global_pool(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_rank(node, 0, 2, kMaxRank));
  SymShape shape = node.input(0)->shape;
  std::fill(shape.begin() + 2, shape.end(), DimExpr(1));
  set_output(node, 0, node.input(0)->dtype, std::move(shape));
  return Status::ok();
}

Status decompose_global_pool(ir::Graph& graph, ir::Node* node) {
  Decomposer d(graph, node);
  ir::Value* x = node->input(0);
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < x->rank(); ++i) axes.push_back(i);
  if (axes.empty()) return d.replace_with(x);
  std::string_view reduction = node->op() == "GlobalAveragePool" ? "ReduceMean" : "ReduceMax";
  FW_ASSIGN_OR_RETURN(ir::Value * y, d.add(reduction, {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{1}}}));
  return d.replace_with(y);
}

}  // namespace

extern const Op kMaxPool{
    "MaxPool", 1, 1, 1, 2, {"kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode", "layout"},
    infer_pool};
extern const Op kAveragePool{
    "AveragePool",
    1,
    1,
    1,
    1,
    {"kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode", "layout", "count_include_pad"},
    infer_average_pool};
extern const Op kGlobalAveragePool{"GlobalAveragePool",  1, 1, 1, 1, {}, infer_global_pool, nullptr, true,
                                   decompose_global_pool};
extern const Op kGlobalMaxPool{"GlobalMaxPool",      1, 1, 1, 1, {}, infer_global_pool, nullptr, true,
                               decompose_global_pool};

}  // namespace flywheel::ops
