// SPDX-License-Identifier: Apache-2.0
#include "kernels/resize/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/resize/resize_taps.h"

namespace flywheel::kernels {
namespace {

// The position in the input that output index `out` stands for, as ONNX Resize names the ways.
double source_position(ResizeCoordinates coordinates, int64_t out, double scale, int64_t in_extent,
                       int64_t out_extent) {
  const double x = static_cast<double>(out);
  switch (coordinates) {
    case ResizeCoordinates::kAsymmetric: return x / scale;
    case ResizeCoordinates::kAlignCorners:
      return out_extent == 1 ? 0 : x * static_cast<double>(in_extent - 1) / static_cast<double>(out_extent - 1);
    case ResizeCoordinates::kPytorchHalfPixel: return out_extent > 1 ? (x + 0.5) / scale - 0.5 : 0;
    case ResizeCoordinates::kHalfPixelSymmetric: {
      // The output's true extent may not be an integer: keep its centre on the input's.
      const double adjustment = static_cast<double>(out_extent) / (scale * static_cast<double>(in_extent));
      const double centre = static_cast<double>(in_extent) / 2;
      return centre * (1 - adjustment) + (x + 0.5) / scale - 0.5;
    }
    default: return (x + 0.5) / scale - 0.5;
  }
}

int64_t round_position(NearestRounding rounding, double x) {
  switch (rounding) {
    case NearestRounding::kRoundPreferCeil: return static_cast<int64_t>(std::floor(x + 0.5));
    case NearestRounding::kFloor: return static_cast<int64_t>(std::floor(x));
    case NearestRounding::kCeil: return static_cast<int64_t>(std::ceil(x));
    default: return static_cast<int64_t>(std::ceil(x - 0.5));
  }
}

// Keys' cubic convolution weight at distance t (Keys 1981), with coefficient a.
double cubic_weight(double t, double a) {
  t = std::abs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
  return 0;
}

}  // namespace

std::vector<ResizeTaps> resize_taps(const ResizeParams& params, double scale, int64_t in_extent, int64_t out_extent) {
  std::vector<ResizeTaps> all(static_cast<size_t>(out_extent));
  for (int64_t o = 0; o < out_extent; ++o) {
    ResizeTaps& taps = all[static_cast<size_t>(o)];
    const double x = source_position(params.coordinates, o, scale, in_extent, out_extent);
    auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i, 0, in_extent - 1); };
    if (params.mode == ResizeMode::kNearest) {
      taps.count = 1;
      taps.index[0] = clamp(round_position(params.rounding, x));
      taps.weight[0] = 1;
      continue;
    }
    const auto base = static_cast<int64_t>(std::floor(x));
    const double fraction = x - static_cast<double>(base);
    const int reach = params.mode == ResizeMode::kLinear ? 1 : 2;
    taps.count = 2 * reach;
    double sum = 0, weights[4] = {};
    for (int t = 0; t < taps.count; ++t) {
      const int64_t i = base - (reach - 1) + t;
      weights[t] = reach == 1
                       ? (t == 0 ? 1 - fraction : fraction)
                       : cubic_weight(static_cast<double>(i - base) - fraction, static_cast<double>(params.cubic_a));
      if (params.exclude_outside && (i < 0 || i >= in_extent)) weights[t] = 0;
      taps.index[t] = clamp(i);
      sum += weights[t];
    }
    for (int t = 0; t < taps.count; ++t)
      taps.weight[t] = static_cast<float>(params.exclude_outside ? weights[t] / sum : weights[t]);
  }
  return all;
}

Result<ResizeParams> ResizeParams::from(const Problem& problem) {
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("resize: {}", why)); };
  if (problem.ints.size() != 4 || problem.floats.size() != 4) return refuse("it needs 4 integers and 4 floats");
  if (problem.inputs.size() != 1 || problem.outputs.size() != 1) return refuse("it takes 1 input and 1 output");
  if (problem.ints[0] < 0 || problem.ints[0] > 2 || problem.ints[1] < 0 || problem.ints[1] > 4 || problem.ints[2] < 0 ||
      problem.ints[2] > 3) {
    return refuse("its mode, coordinates or rounding is unknown");
  }
  ResizeParams params;
  params.mode = static_cast<ResizeMode>(problem.ints[0]);
  params.coordinates = static_cast<ResizeCoordinates>(problem.ints[1]);
  params.rounding = static_cast<NearestRounding>(problem.ints[2]);
  params.exclude_outside = problem.ints[3] != 0;
  params.cubic_a = static_cast<float>(problem.floats[2]);
  params.extrapolation_value = static_cast<float>(problem.floats[3]);
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (x.rank() != 4 || y.rank() != 4 || x.dims[0] != y.dims[0] || x.dims[3] != y.dims[3]) {
    return refuse(fmt::format("{} and {} are not images of equal count and channels", x.to_string(), y.to_string()));
  }
  auto scale_of = [&](size_t dim) {
    const int64_t in = x.dims[dim], out = y.dims[dim];
    if (problem.floats[dim - 1] != 0) return problem.floats[dim - 1];
    return in > 0 && out > 0 ? static_cast<double>(out) / static_cast<double>(in) : 1.0;
  };
  params.scale_h = scale_of(1);
  params.scale_w = scale_of(2);
  if (!(params.scale_h > 0) || !(params.scale_w > 0)) return refuse("its scales must be positive");
  if (x.dtype != DType::kFloat32 || y.dtype != DType::kFloat32) return refuse("it needs f32");
  for (const TensorDesc* desc : {&x, &y}) {
    if (desc->dims[3] > 1 && desc->strides[3] != 1)
      return refuse(fmt::format("the innermost stride of {} is not 1", desc->to_string()));
  }
  if ((x.dims[1] == 0 || x.dims[2] == 0) && y.elements() > 0) return refuse("its input is empty");
  return params;
}

}  // namespace flywheel::kernels
