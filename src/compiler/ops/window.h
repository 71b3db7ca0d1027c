// SPDX-License-Identifier: Apache-2.0
// What convolutions and pools share: a window of R x S (or S) that slides over the spatial dims. Only files of ops/ use
// it. Attributes: kernel_shape, strides, dilations, pads (all begins, then all ends), auto_pad, ceil_mode, layout.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::ops {

struct Window {
  std::vector<int64_t> kernel, strides, dilations;  // one for each spatial dim
  std::vector<int64_t> pads_begin, pads_end;        // zero with auto_pad
  std::string auto_pad = "NOTSET";
  bool nhwc = false;
  size_t channel_dim = 1, first_spatial = 2;
};
// Reads and checks the attributes for an operand of that rank. `kernel_from` gives the kernel when kernel_shape is
// absent.
Result<Window> read_window(const ir::Node& node, std::vector<int64_t> kernel_from);
// Output extents of the spatial dims.
Result<SymShape> window_extents(const Window& window, const SymShape& x, bool ceil_mode);
// [N, C, spatial...] in the window's layout.
SymShape in_layout(const Window& window, DimExpr batch, DimExpr channels, const SymShape& spatial);
// How far a dilated kernel reaches.
Result<int64_t> kernel_extent(const Window& window, size_t i);

}  // namespace flywheel::ops
