// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/window.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

constexpr int64_t kLargest =
    int64_t{1} << 31;  // of a kernel, stride, dilation or pad: sums and products stay far from overflow

Result<std::vector<int64_t>> window_ints(const ir::Node& node, std::string_view name, size_t count, int64_t fallback,
                                         int64_t least) {
  const auto* given = node.find<std::vector<int64_t>>(name);
  if (!given && node.attributes.contains(name))
    return invalid_argument(fmt::format("attribute {} must be plain integers", name));
  if (!given || given->empty()) return std::vector<int64_t>(count, fallback);
  if (given->size() != count) {
    return invalid_argument(fmt::format("attribute {} has {} entries; expected {}", name, given->size(), count));
  }
  for (int64_t value : *given) {
    if (value < least || value > kLargest) {
      return invalid_argument(fmt::format("attribute {} has {}; expected {} to {}", name, value, least, kLargest));
    }
  }
  return *given;
}

}  // namespace

Result<Window> read_window(const ir::Node& node, std::vector<int64_t> kernel_from) {
  FW_RETURN_IF_ERROR(require_rank(node, 0, 3, kMaxRank));
  size_t spatial = static_cast<size_t>(node.input(0)->rank()) - 2;
  Window window;
  std::string layout = node.string_or("layout", "NCHW");
  if (layout != "NCHW" && layout != "NHWC") {
    return invalid_argument(fmt::format("attribute layout is \"{}\"; expected NCHW or NHWC", layout));
  }
  window.nhwc = layout == "NHWC";
  window.channel_dim = window.nhwc ? spatial + 1 : 1;
  window.first_spatial = window.nhwc ? 1 : 2;
  FW_ASSIGN_OR_RETURN(window.kernel, window_ints(node, "kernel_shape", spatial, 0, 1));
  if (window.kernel[0] == 0) window.kernel = kernel_from;
  if (window.kernel.size() != spatial) return invalid_argument("attribute kernel_shape is missing");
  if (!kernel_from.empty() && window.kernel != kernel_from) {
    return invalid_argument("attribute kernel_shape differs from the weights' shape");
  }
  for (int64_t k : window.kernel) {
    if (k < 1 || k > kLargest) return invalid_argument(fmt::format("its kernel has an extent of {}", k));
  }
  FW_ASSIGN_OR_RETURN(window.strides, window_ints(node, "strides", spatial, 1, 1));
  FW_ASSIGN_OR_RETURN(window.dilations, window_ints(node, "dilations", spatial, 1, 1));
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> pads, window_ints(node, "pads", 2 * spatial, 0, 0));
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(spatial));
  window.pads_end.assign(pads.begin() + static_cast<ptrdiff_t>(spatial), pads.end());
  window.auto_pad = node.string_or("auto_pad", "NOTSET");
  if (window.auto_pad != "NOTSET") {
    if (window.auto_pad != "SAME_UPPER" && window.auto_pad != "SAME_LOWER" && window.auto_pad != "VALID") {
      return invalid_argument(fmt::format(
          "attribute auto_pad is \"{}\"; expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", window.auto_pad));
    }
    if (std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; })) {
      return invalid_argument(fmt::format("it has pads and auto_pad {}; expected one of them", window.auto_pad));
    }
  }
  return window;
}

Result<int64_t> kernel_extent(const Window& window, size_t i) {
  int64_t reach;
  if (__builtin_mul_overflow(window.kernel[i] - 1, window.dilations[i], &reach) || reach > (int64_t{1} << 61)) {
    return invalid_argument(
        fmt::format("a kernel of {} dilated by {} overflows", window.kernel[i], window.dilations[i]));
  }
  return reach + 1;
}

Result<SymShape> window_extents(const Window& window, const SymShape& x, bool ceil_mode) {
  SymShape out;
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    const DimExpr& in = x[window.first_spatial + i];
    int64_t stride = window.strides[i];
    if (window.auto_pad == "SAME_UPPER" || window.auto_pad == "SAME_LOWER") {
      out.push_back(DimExpr::floor_div(in + (stride - 1), stride));
      continue;
    }
    FW_ASSIGN_OR_RETURN(int64_t reach, kernel_extent(window, i));
    DimExpr padded = in + window.pads_begin[i] + window.pads_end[i];
    if (surely_less(padded, reach)) {
      return invalid_argument(
          fmt::format("spatial dim {} is {} with its pads; the kernel reaches over {}", i, padded.to_string(), reach));
    }
    if (ceil_mode) {
      // The last window must begin inside the input or its leading pad.
      out.push_back(DimExpr::min(DimExpr::floor_div(padded - reach + (stride - 1), stride) + 1,
                                 DimExpr::floor_div(in + (window.pads_begin[i] - 1), stride) + 1));
      continue;
    }
    out.push_back(DimExpr::floor_div(padded - reach, stride) + 1);
  }
  return out;
}

SymShape in_layout(const Window& window, DimExpr batch, DimExpr channels, const SymShape& spatial) {
  SymShape shape{std::move(batch)};
  if (!window.nhwc) shape.push_back(channels);
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  if (window.nhwc) shape.push_back(std::move(channels));
  return shape;
}

}  // namespace flywheel::ops
