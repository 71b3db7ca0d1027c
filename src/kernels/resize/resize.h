// SPDX-License-Identifier: Apache-2.0
// Family resize: interpolation of the two middle dims of NHWC.
// Operands: inputs[0] X [N,H,W,C], outputs[0] Y [N,OH,OW,C], f32, innermost strides 1, others free.
// ints: [mode, coordinates, nearest_rounding, exclude_outside]; floats: [scale_h, scale_w, cubic_a,
// extrapolation_value].
//   mode 0 nearest, 1 linear, 2 cubic; coordinates 0 half_pixel, 1 asymmetric, 2 align_corners, 3 pytorch_half_pixel,
//   4 half_pixel_symmetric; nearest_rounding 0 round_prefer_floor, 1 round_prefer_ceil, 2 floor, 3 ceil. As ONNX Resize
//   defines. A scale of 0 is the quotient of the extents.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class ResizeMode : int64_t { kNearest = 0, kLinear = 1, kCubic = 2 };
enum class ResizeCoordinates : int64_t {
  kHalfPixel = 0,
  kAsymmetric,
  kAlignCorners,
  kPytorchHalfPixel,
  kHalfPixelSymmetric
};
enum class NearestRounding : int64_t { kRoundPreferFloor = 0, kRoundPreferCeil, kFloor, kCeil };

struct ResizeParams {
  ResizeMode mode = ResizeMode::kNearest;
  ResizeCoordinates coordinates = ResizeCoordinates::kHalfPixel;
  NearestRounding rounding = NearestRounding::kRoundPreferFloor;
  bool exclude_outside = false;
  double scale_h = 1, scale_w = 1;
  float cubic_a = -0.75F, extrapolation_value = 0;
  static Result<ResizeParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
