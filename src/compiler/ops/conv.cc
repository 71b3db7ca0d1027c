// SPDX-License-Identifier: Apache-2.0
// Conv: x, weights [K, C/group, R, S] and a bias [K]; ConvTranspose: weights [C, K/group, R, S].
//   {kernel_shape, strides, dilations, pads, group, layout, program}  Conv also {auto_pad}  ConvTranspose also
//   {output_padding}
// With a program the operands after the weights are the epilogue's, and there is no bias.
#include <fmt/format.h>

#include "compiler/ops/infer.h"
#include "compiler/ops/window.h"

namespace flywheel::ops {
namespace {

struct Convolution {
  Window window;
  int64_t group = 1;
};

Result<Convolution> read_convolution(const ir::Node& node) {
  const ir::Value &x = *node.input(0), &w = *node.input(1);
  FW_RETURN_IF_ERROR(require_same_dtype(node, 0, 2));
  FW_RETURN_IF_ERROR(require_rank(node, 0, 3, kMaxRank));
  if (w.rank() != x.rank()) {
    return invalid_argument(fmt::format("x has shape {} and the weights {}; expected equal ranks",
                                        sym_shape_to_string(x.shape), sym_shape_to_string(w.shape)));
  }
  std::vector<int64_t> kernel;
  for (size_t i = 2; i < w.shape.size(); ++i) {
    std::optional<int64_t> extent = w.shape[i].constant();
    if (!extent)
      return unsupported(
          fmt::format("the weights have shape {}; the kernel's dims must be fixed", sym_shape_to_string(w.shape)));
    kernel.push_back(*extent);
  }
  Convolution conv;
  FW_ASSIGN_OR_RETURN(conv.window, read_window(node, std::move(kernel)));
  conv.group = node.int_or("group", 1);
  if (conv.group < 1) return invalid_argument(fmt::format("attribute group is {}; expected at least 1", conv.group));
  return conv;
}

Status check_bias(const ir::Node& node, const DimExpr& channels) {
  if (node.find<kernels::Program>("program")) return check_epilogue(node, 2);
  if (node.inputs().size() > 3)
    return invalid_argument(fmt::format("it has {} operands and no program; expected 2 or 3", node.inputs().size()));
  const ir::Value* bias = node.input(2);
  if (!bias) return Status::ok();
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  FW_RETURN_IF_ERROR(require_rank(node, 2, 1, 1));
  return require_equal(node, bias->shape[0], channels, "the bias's extent and the output channels");
}

Status infer_conv(ir::Node& node) {
  const ir::Value &x = *node.input(0), &w = *node.input(1);
  FW_ASSIGN_OR_RETURN(Convolution conv, read_convolution(node));
  FW_RETURN_IF_ERROR(require_equal(node, x.shape[conv.window.channel_dim], w.shape[1] * DimExpr(conv.group),
                                   "x's channels and the weights' dim 1 times group"));
  if (w.shape[0].is_constant() && *w.shape[0].constant() % conv.group != 0) {
    return invalid_argument(
        fmt::format("its {} output channels do not divide into {} groups", *w.shape[0].constant(), conv.group));
  }
  FW_ASSIGN_OR_RETURN(SymShape spatial, window_extents(conv.window, x.shape, false));
  set_output(node, 0, x.dtype, in_layout(conv.window, x.shape[0], w.shape[0], spatial));
  return check_bias(node, w.shape[0]);
}

Status infer_conv_transpose(ir::Node& node) {
  const ir::Value &x = *node.input(0), &w = *node.input(1);
  FW_ASSIGN_OR_RETURN(Convolution conv, read_convolution(node));
  const Window& window = conv.window;
  FW_RETURN_IF_ERROR(
      require_equal(node, x.shape[window.channel_dim], w.shape[0], "x's channels and the weights' dim 0"));
  if (w.shape[0].is_constant() && *w.shape[0].constant() % conv.group != 0) {
    return invalid_argument(
        fmt::format("its {} input channels do not divide into {} groups", *w.shape[0].constant(), conv.group));
  }
  size_t count = window.kernel.size();
  std::vector<int64_t> more = node.ints_or("output_padding", std::vector<int64_t>(count, 0));
  if (more.size() != count)
    return invalid_argument(fmt::format("attribute output_padding has {} entries; expected {}", more.size(), count));
  SymShape spatial;
  for (size_t i = 0; i < count; ++i) {
    if (more[i] < 0 || (more[i] >= window.strides[i] && more[i] >= window.dilations[i])) {
      return invalid_argument(
          fmt::format("attribute output_padding has {}; expected less than stride or dilation", more[i]));
    }
    FW_ASSIGN_OR_RETURN(int64_t reach, kernel_extent(window, i));
    spatial.push_back((x.shape[window.first_spatial + i] - 1) * DimExpr(window.strides[i]) + more[i] + reach -
                      window.pads_begin[i] - window.pads_end[i]);
  }
  DimExpr channels = w.shape[1] * DimExpr(conv.group);
  set_output(node, 0, x.dtype, in_layout(window, x.shape[0], channels, spatial));
  return check_bias(node, channels);
}

}  // namespace

extern const Op kConv{
    "Conv",    2, -1, 1, 1, {"kernel_shape", "strides", "dilations", "pads", "auto_pad", "group", "layout", "program"},
    infer_conv};
extern const Op kConvTranspose{
    "ConvTranspose",
    2,
    -1,
    1,
    1,
    {"kernel_shape", "strides", "dilations", "pads", "output_padding", "group", "layout", "program"},
    infer_conv_transpose};

}  // namespace flywheel::ops
