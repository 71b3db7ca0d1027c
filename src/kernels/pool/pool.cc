// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool/pool.h"

#include <fmt/format.h>

#include "kernels/pool/pool_window.h"

namespace flywheel::kernels {

std::vector<int64_t> PoolParams::to_ints() const {
  return {static_cast<int64_t>(kind),
          kernel_h,
          kernel_w,
          stride_h,
          stride_w,
          pad_top,
          pad_left,
          pad_bottom,
          pad_right,
          dilation_h,
          dilation_w,
          count_include_pad ? 1 : 0};
}

Result<PoolParams> PoolParams::from(const Problem& problem) {
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("pool: {}", why)); };
  if (problem.ints.size() != 12) return refuse(fmt::format("it needs 12 integers, not {}", problem.ints.size()));
  if (problem.inputs.size() != 1 || problem.outputs.size() != 1) return refuse("it takes 1 input and 1 output");
  const std::vector<int64_t>& i = problem.ints;
  if (i[0] != 0 && i[0] != 1) return refuse(fmt::format("kind {} is unknown", i[0]));
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (size_t k : {1, 2, 3, 4, 9, 10}) {
    if (i[k] < 1 || i[k] >= kLimit) return refuse(fmt::format("kernel, stride or dilation {} is out of range", i[k]));
  }
  for (size_t k : {5, 6, 7, 8}) {
    if (i[k] < 0 || i[k] >= kLimit) return refuse(fmt::format("pad {} is out of range", i[k]));
  }
  PoolParams p;
  p.kind = static_cast<PoolKind>(i[0]);
  p.kernel_h = i[1], p.kernel_w = i[2], p.stride_h = i[3], p.stride_w = i[4];
  p.pad_top = i[5], p.pad_left = i[6], p.pad_bottom = i[7], p.pad_right = i[8];
  p.dilation_h = i[9], p.dilation_w = i[10], p.count_include_pad = i[11] != 0;
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (x.rank() != 4 || y.rank() != 4 || x.dims[0] != y.dims[0] || x.dims[3] != y.dims[3]) {
    return refuse(fmt::format("{} and {} are not images of equal count and channels", x.to_string(), y.to_string()));
  }
  if (x.dtype != y.dtype || (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat64)) {
    return refuse(fmt::format("{} to {} is not f32 or f64", x.to_string(), y.to_string()));
  }
  for (const TensorDesc* desc : {&x, &y}) {
    if (desc->dims[3] > 1 && desc->strides[3] != 1)
      return refuse(fmt::format("the innermost stride of {} is not 1", desc->to_string()));
  }
  // Ceil mode lets the last window begin anywhere in the padded image; a window that begins behind it is a mistake.
  if (y.dims[1] > 0 && (y.dims[1] - 1) * p.stride_h - p.pad_top >= x.dims[1] + p.pad_bottom)
    return refuse("the output is too high");
  if (y.dims[2] > 0 && (y.dims[2] - 1) * p.stride_w - p.pad_left >= x.dims[2] + p.pad_right)
    return refuse("the output is too wide");
  return p;
}

WindowSpan window_span(int64_t out, int64_t stride, int64_t pad_begin, int64_t pad_end, int64_t kernel,
                       int64_t dilation, int64_t extent) {
  const int64_t start = out * stride - pad_begin;
  int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  int64_t last =
      extent - start <= 0 ? 0 : (extent - start + dilation - 1) / dilation;  // first tap at or behind the end
  if (first > kernel) first = kernel;
  if (last > kernel) last = kernel;
  const int64_t padded_end = extent + pad_end - start;
  int64_t padded = padded_end <= 0 ? 0 : (padded_end + dilation - 1) / dilation;
  if (padded > kernel) padded = kernel;
  return {start + first * dilation, last > first ? last - first : 0, padded};
}

}  // namespace flywheel::kernels
