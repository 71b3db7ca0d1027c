// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv/conv.h"

#include <fmt/format.h>

#include <iterator>

#include "kernels/conv/conv_checks.h"

namespace flywheel::kernels {
namespace {

// Far above any real attribute, far below what could overflow int64 in the arithmetic on it.
constexpr int64_t kLargest = int64_t{1} << 31;

}  // namespace

std::vector<int64_t> ConvParams::to_ints() const {
  return {kernel_h,   kernel_w,  stride_h,   stride_w,   pad_top, pad_left,
          pad_bottom, pad_right, dilation_h, dilation_w, groups};
}

Result<ConvParams> conv_params_from_ints(const std::vector<int64_t>& ints, Family family) {
  static constexpr const char* kNames[] = {"kernel_h",   "kernel_w",  "stride_h",   "stride_w",   "pad_top", "pad_left",
                                           "pad_bottom", "pad_right", "dilation_h", "dilation_w", "groups"};
  constexpr size_t kCount = std::size(kNames);
  if (ints.size() != kCount) {
    return invalid_argument(fmt::format("{} takes {} attributes; found {}", family_name(family), kCount, ints.size()));
  }
  for (size_t i = 0; i < kCount; ++i) {
    const int64_t least = i >= 4 && i < 8 ? 0 : 1;
    if (ints[i] < least || ints[i] > kLargest) {
      return invalid_argument(
          fmt::format("{}: {} is {}; expected {} to {}", family_name(family), kNames[i], ints[i], least, kLargest));
    }
  }
  return ConvParams{ints[0], ints[1], ints[2], ints[3], ints[4], ints[5], ints[6], ints[7], ints[8], ints[9], ints[10]};
}

Status check_conv_operands(const Problem& problem) {
  const std::string_view family = family_name(problem.family);
  const TensorDesc &x = problem.inputs[0], &w = problem.inputs[1], &y = problem.outputs[0];
  if (x.rank() != 4 || w.rank() != 4 || y.rank() != 4) {
    return invalid_argument(fmt::format("{} takes X, W and Y of rank 4; found {}, {}, {}", family, x.to_string(),
                                        w.to_string(), y.to_string()));
  }
  const bool known = x.dtype == DType::kFloat32 || x.dtype == DType::kFloat64;
  if (x.dtype != w.dtype || !known) {
    return invalid_argument(fmt::format("{} takes X and W of one type, f32 or f64; found {} and {}", family,
                                        dtype_name(x.dtype), dtype_name(w.dtype)));
  }
  for (int64_t dim : x.dims) {
    if (dim > kLargest)
      return invalid_argument(fmt::format("{}: X {} has a dim above {}", family, x.to_string(), kLargest));
  }
  if (!w.is_contiguous()) {
    return invalid_argument(fmt::format("{} needs contiguous weights; found {}", family, w.to_string()));
  }
  if ((x.dims[3] > 1 && x.strides[3] != 1) || (y.dims[3] > 1 && y.strides[3] != 1)) {
    return invalid_argument(
        fmt::format("{} needs channels of stride 1 (NHWC); found X {}, Y {}", family, x.to_string(), y.to_string()));
  }
  return Status::ok();
}

Result<ConvParams> ConvParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kConv, 2));
  FW_RETURN_IF_ERROR(check_epilogue(problem, 2));
  FW_RETURN_IF_ERROR(check_conv_operands(problem));
  FW_ASSIGN_OR_RETURN(ConvParams p, conv_params_from_ints(problem.ints, problem.family));
  const Dims &x = problem.inputs[0].dims, &w = problem.inputs[1].dims, &y = problem.outputs[0].dims;
  const bool weights_fit = x[3] % p.groups == 0 && w[0] % p.groups == 0 && w[1] == x[3] / p.groups &&
                           w[2] == p.kernel_h && w[3] == p.kernel_w;
  if (!weights_fit) {
    return invalid_argument(fmt::format("conv weights {} do not fit {} input channels, {} groups and a {}x{} kernel",
                                        dims_to_string(w), x[3], p.groups, p.kernel_h, p.kernel_w));
  }
  // Each factor is at most 2^31, so nothing here leaves int64.
  const int64_t span_h = x[1] + p.pad_top + p.pad_bottom - p.dilation_h * (p.kernel_h - 1) - 1;
  const int64_t span_w = x[2] + p.pad_left + p.pad_right - p.dilation_w * (p.kernel_w - 1) - 1;
  if (span_h < 0 || span_w < 0) {
    return invalid_argument(fmt::format("conv's {}x{} kernel (dilation {}x{}) is larger than the padded input {}",
                                        p.kernel_h, p.kernel_w, p.dilation_h, p.dilation_w, dims_to_string(x)));
  }
  const Dims expected = {x[0], span_h / p.stride_h + 1, span_w / p.stride_w + 1, w[0]};
  if (y != expected) {
    return invalid_argument(
        fmt::format("conv's output is {}; expected {}", dims_to_string(y), dims_to_string(expected)));
  }
  return p;
}

}  // namespace flywheel::kernels
