// SPDX-License-Identifier: Apache-2.0
// Family pool: 2-D max and average pooling over NHWC.
// Operands: inputs[0] X [N,H,W,C]; outputs[0] Y [N,OH,OW,C]; innermost strides 1, others free. Windows reach outside X
// where the pads (or ceil mode, already in OH/OW) say so; such elements are -infinity for max and are counted by
// average only with count_include_pad (and then only inside the padded extent, as ONNX defines). ints: [kind, kernel_h,
// kernel_w, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w,
//        count_include_pad].
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class PoolKind : int64_t { kMax = 0, kAverage = 1 };

struct PoolParams {
  PoolKind kind = PoolKind::kMax;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  bool count_include_pad = false;
  std::vector<int64_t> to_ints() const;
  static Result<PoolParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
