// SPDX-License-Identifier: Apache-2.0
// Family conv: 2-D convolution over NHWC.
//   acc[n,y,x,k] = sum over r,s,c of  X[n, y*stride_h + r*dilation_h - pad_top, x*stride_w + s*dilation_w - pad_left,
//   g*Cg + c]
//                                     * W[k, c, r, s]            with g = k / (K/groups), Cg = C/groups, zero outside X
//   Y = program(acc, epilogue operands)
// Operands: inputs[0] X [N,H,W,C]; inputs[1] W [K,C/groups,R,S], constant (ONNX's OIHW); inputs[2..] the epilogue's,
// each broadcasting to Y (a bias is [K]; a residual [N,OH,OW,K]). outputs[0] Y [N,OH,OW,K]. The innermost stride of X,
// Y and of full-size epilogue operands is 1; the others are free (Y may be a slice of a Concat's buffer). A 1-D
// convolution comes with H = R = 1. groups == C == K is depthwise.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct ConvParams {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t dilation_h = 1, dilation_w = 1, groups = 1;

  // Problem::ints in the order above. from() checks the count, positivity, shapes against each other and the program.
  std::vector<int64_t> to_ints() const;
  static Result<ConvParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
