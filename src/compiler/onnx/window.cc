// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/window.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flywheel::onnx_import {
namespace {

constexpr int64_t kLargest = 1 << 24;  // of a kernel, stride, dilation or pad: products of two stay far from overflow

Status read_list(NodeContext& node, const char* name, size_t count, int64_t fallback, int64_t smallest,
                 std::vector<int64_t>* values) {
  auto given = node.get_ints(name);
  *values = given ? *std::move(given) : std::vector<int64_t>(count, fallback);
  if (values->size() != count) {
    return invalid_argument(fmt::format("attribute '{}' has {} values; {} are expected", name, values->size(), count));
  }
  for (int64_t value : *values) {
    if (value < smallest || value > kLargest) {
      return invalid_argument(
          fmt::format("attribute '{}' holds {}; it must be in [{}, {}]", name, value, smallest, kLargest));
    }
  }
  return Status::ok();
}

// SAME: the result has ceil(extent / stride) elements; the odd element of padding is at the end (UPPER) or the begin
// (LOWER).
void resolve_same(const SymShape& shape, Window* window) {
  std::vector<int64_t> pads(2 * window->spatial());
  for (size_t i = 0; i < window->spatial(); ++i) {
    const int64_t reach = (window->kernel[i] - 1) * window->dilations[i] + 1, stride = window->strides[i];
    int64_t total = reach - 1;  // with stride 1 it does not depend on the extent
    if (stride != 1) {
      const auto extent = shape[2 + i].constant();
      if (!extent) return;
      const int64_t out = *extent / stride + (*extent % stride != 0);
      total = std::max<int64_t>((out - 1) * stride + reach - *extent, 0);
    }
    const int64_t half = total / 2;
    pads[i] = window->auto_pad == "SAME_UPPER" ? half : total - half;
    pads[window->spatial() + i] = total - pads[i];
  }
  window->pads = std::move(pads);
  window->auto_pad = "NOTSET";
}

}  // namespace

Result<Window> read_window(NodeContext& node, std::vector<int64_t> kernel, bool has_dilations, bool resolve) {
  const ir::Value& x = *node.input(0);
  if (x.rank() < 3)
    return invalid_argument(
        fmt::format("its input has {} dims; batch, channels and at least one more are expected", x.rank()));
  const size_t spatial = static_cast<size_t>(x.rank()) - 2;
  Window window;
  window.kernel = std::move(kernel);
  const bool from_weights = !window.kernel.empty();
  if (const auto given = node.get_ints("kernel_shape")) {
    if (from_weights && *given != window.kernel) {
      return invalid_argument(fmt::format("attribute 'kernel_shape' is [{}] but the weights have [{}]",
                                          fmt::join(*given, ", "), fmt::join(window.kernel, ", ")));
    }
    window.kernel = *given;
  } else if (!from_weights) {
    return invalid_argument("attribute 'kernel_shape' is missing");
  }
  if (window.kernel.size() != spatial) {
    return invalid_argument(fmt::format("its kernel has {} dims and its input {}", window.kernel.size(), spatial));
  }
  for (int64_t extent : window.kernel) {
    if (extent < 1 || extent > kLargest) return invalid_argument(fmt::format("its kernel has an extent of {}", extent));
  }
  FW_RETURN_IF_ERROR(read_list(node, "strides", spatial, 1, 1, &window.strides));
  window.dilations.assign(spatial, 1);
  if (has_dilations) FW_RETURN_IF_ERROR(read_list(node, "dilations", spatial, 1, 1, &window.dilations));
  FW_RETURN_IF_ERROR(read_list(node, "pads", 2 * spatial, 0, 0, &window.pads));
  window.auto_pad = node.get_string("auto_pad", "NOTSET");
  if (window.auto_pad == "VALID") {
    window.pads.assign(2 * spatial, 0);
    window.auto_pad = "NOTSET";
  } else if (window.auto_pad == "SAME_UPPER" || window.auto_pad == "SAME_LOWER") {
    if (resolve) resolve_same(x.shape, &window);
  } else if (window.auto_pad != "NOTSET") {
    return invalid_argument(fmt::format(
        "attribute 'auto_pad' is '{}'; NOTSET, VALID, SAME_UPPER and SAME_LOWER are defined", window.auto_pad));
  }
  return window;
}

}  // namespace flywheel::onnx_import
