// SPDX-License-Identifier: Apache-2.0
// The attributes that convolutions and pools share: kernel, strides, dilations, padding, with auto_pad resolved where
// the extents are known. Used by import_conv.cc and import_pool.cc.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/node_context.h"

namespace flywheel::onnx_import {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads;  // pads: begins, then ends
  std::string auto_pad;  // "NOTSET", or SAME_UPPER or SAME_LOWER where pads depend on the extent of an input
  size_t spatial() const { return kernel.size(); }
};

// Reads and checks them for an input [N, C, spatial...]. `kernel`: the weights' extents, or empty for a pool, whose
// kernel_shape is required. `resolve_same`: false leaves auto_pad to the caller.
Result<Window> read_window(NodeContext& node, std::vector<int64_t> kernel, bool has_dilations,
                           bool resolve_same = true);

}  // namespace flywheel::onnx_import
