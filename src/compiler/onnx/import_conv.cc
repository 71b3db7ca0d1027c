// SPDX-License-Identifier: Apache-2.0
// Conv and ConvTranspose. Called through import_list.inc.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/onnx/import_functions.h"
#include "compiler/onnx/window.h"

namespace flywheel::onnx_import {
namespace {

Result<std::vector<int64_t>> weight_kernel(const NodeContext& node) {
  const ir::Value &x = *node.input(0), &weights = *node.input(1);
  if (weights.rank() != x.rank()) {
    return invalid_argument(fmt::format("its weights have {} dims and its input {}", weights.rank(), x.rank()));
  }
  std::vector<int64_t> kernel;
  for (int i = 2; i < weights.rank(); ++i) {
    const auto extent = weights.shape[i].constant();
    if (!extent) return unsupported("the extents of its weights depend on an input");
    kernel.push_back(*extent);
  }
  return kernel;
}

Attributes attributes_of(const Window& window, int64_t group) {
  Attributes attributes{
      {"kernel_shape", window.kernel}, {"strides", window.strides}, {"dilations", window.dilations}, {"group", group}};
  if (window.auto_pad == "NOTSET") {
    attributes.emplace("pads", window.pads);
  } else {
    attributes.emplace("auto_pad", window.auto_pad);
  }
  return attributes;
}

// ConvTranspose's padding follows from the extent that is wanted: that of output_shape, or input * stride for SAME.
Status resolve_transposed(NodeContext& node, const std::optional<std::vector<int64_t>>& output_shape, Window* window,
                          std::vector<int64_t>* output_padding) {
  const SymShape& shape = node.input(0)->shape;
  if (output_shape && output_shape->size() != window->spatial()) {
    return invalid_argument(fmt::format("attribute 'output_shape' has {} values; {} are expected", output_shape->size(),
                                        window->spatial()));
  }
  for (size_t i = 0; i < window->spatial(); ++i) {
    const int64_t reach = (window->kernel[i] - 1) * window->dilations[i] + 1, stride = window->strides[i];
    int64_t total = reach - stride + (*output_padding)[i];  // for SAME, whatever the extent
    if (output_shape) {
      const auto extent = shape[2 + i].constant();
      if (!extent) return unsupported("attribute 'output_shape' with an input of varying extent; export it with pads");
      if (*extent > (int64_t{1} << 32) || (*output_shape)[i] < 1)
        return invalid_argument("attribute 'output_shape' cannot be met");
      total = (*extent - 1) * stride + (*output_padding)[i] + reach - (*output_shape)[i];
    }
    if (total < 0) {  // the result is to be larger than the input reaches
      (*output_padding)[i] -= total;
      total = 0;
    }
    const int64_t half = total / 2;
    window->pads[i] = window->auto_pad == "SAME_UPPER" ? half : total - half;
    window->pads[window->spatial() + i] = total - window->pads[i];
  }
  window->auto_pad = "NOTSET";
  return Status::ok();
}

}  // namespace

Status import_conv(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> kernel, weight_kernel(node));
  FW_ASSIGN_OR_RETURN(Window window, read_window(node, std::move(kernel), true));
  return node.emit_outputs("Conv", node.inputs(), attributes_of(window, node.get_int("group", 1)));
}

Status import_conv_transpose(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> kernel, weight_kernel(node));
  FW_ASSIGN_OR_RETURN(Window window, read_window(node, std::move(kernel), true, false));
  auto output_padding = node.get_ints("output_padding").value_or(std::vector<int64_t>(window.spatial(), 0));
  if (output_padding.size() != window.spatial() ||
      std::any_of(output_padding.begin(), output_padding.end(), [](int64_t p) { return p < 0 || p > (1 << 24); })) {
    return invalid_argument(
        fmt::format("attribute 'output_padding' must have {} values that are not negative", window.spatial()));
  }
  const auto output_shape = node.get_ints("output_shape");
  if (output_shape || window.auto_pad != "NOTSET") {
    FW_RETURN_IF_ERROR(resolve_transposed(node, output_shape, &window, &output_padding));
  }
  Attributes attributes = attributes_of(window, node.get_int("group", 1));
  attributes.emplace("output_padding", std::move(output_padding));
  return node.emit_outputs("ConvTranspose", node.inputs(), std::move(attributes));
}

}  // namespace flywheel::onnx_import
