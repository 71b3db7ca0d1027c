// SPDX-License-Identifier: Apache-2.0
// Family conv_transpose: 2-D transposed convolution over NHWC.
//   acc[n,y,x,k] = sum over r,s,c and input pixels i,j with y = i*stride_h + r*dilation_h - pad_top (likewise x) of
//                  X[n,i,j,g*Cg + c] * W[g*Cg + c, k - g*Kg, r, s]
//   Y = program(acc, epilogue operands)
// Operands: inputs[0] X [N,H,W,C]; inputs[1] W [C,K/groups,R,S], constant (ONNX's layout); inputs[2..] the epilogue's;
// outputs[0] Y [N,OH,OW,K]; its extent says what output_padding added. Innermost strides are 1.
// Attributes are ConvParams (pads as ONNX's; kernel, stride, dilation, groups).
#pragma once

#include "kernels/conv/conv.h"

namespace flywheel::kernels {

Result<ConvParams> conv_transpose_params(const Problem& problem);

}  // namespace flywheel::kernels
