// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv_transpose/conv_transpose.h"

#include <fmt/format.h>

#include "kernels/conv/conv_checks.h"

namespace flywheel::kernels {

Result<ConvParams> conv_transpose_params(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kConvTranspose, 2));
  FW_RETURN_IF_ERROR(check_epilogue(problem, 2));
  FW_RETURN_IF_ERROR(check_conv_operands(problem));
  FW_ASSIGN_OR_RETURN(ConvParams p, conv_params_from_ints(problem.ints, problem.family));
  const Dims &x = problem.inputs[0].dims, &w = problem.inputs[1].dims, &y = problem.outputs[0].dims;
  const bool weights_fit = x[3] % p.groups == 0 && w[0] == x[3] && w[2] == p.kernel_h && w[3] == p.kernel_w;
  if (!weights_fit) {
    return invalid_argument(
        fmt::format("conv_transpose weights {} do not fit {} input channels, {} groups and a {}x{} kernel",
                    dims_to_string(w), x[3], p.groups, p.kernel_h, p.kernel_w));
  }
  int64_t outputs = 0;
  const bool countable = !__builtin_mul_overflow(w[1], p.groups, &outputs);
  // What the strides and pads give; a larger output is output_padding. Factors are at most 2^31.
  const int64_t least_h = (x[1] - 1) * p.stride_h - p.pad_top - p.pad_bottom + p.dilation_h * (p.kernel_h - 1) + 1;
  const int64_t least_w = (x[2] - 1) * p.stride_w - p.pad_left - p.pad_right + p.dilation_w * (p.kernel_w - 1) + 1;
  if (!countable || y[0] != x[0] || y[3] != outputs || y[1] < least_h || y[2] < least_w) {
    return invalid_argument(
        fmt::format("conv_transpose's output is {}; expected {}x{}x{}x{} or, with output padding, larger",
                    dims_to_string(y), x[0], least_h, least_w, outputs));
  }
  return p;
}

}  // namespace flywheel::kernels
