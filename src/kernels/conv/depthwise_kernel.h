// SPDX-License-Identifier: Apache-2.0
// The inner kernel of depthwise convolution: a few neighbouring output pixels of one vector of channels. Channels are
// independent, so the vector runs over them and nothing is shuffled. Pure functions over memory; any thread.
// Called by conv/conv_depthwise.cc; conv/depthwise_kernel_<isa>.cc defines them.
#pragma once

#include <cstdint>

#include "base/cpu_info.h"

namespace flywheel::kernels {

inline constexpr int kMaxDepthwisePixels = 12;

// Strides and steps count floats. Each result is one chain of multiply-adds over the taps in order, starting from zero.
struct DepthwiseArgs {
  const float* x;  // the first tap of the first pixel
  int64_t x_step;  // from output pixel to output pixel, in the input
  int64_t taps_y, taps_x;
  const int8_t*
      inside;  // for each tap of a row: the first and one past the last pixel for which it is inside the input
  int64_t x_tap_y, x_tap_x;
  const float* w;
  int64_t w_tap_y, w_tap_x;
  int32_t lanes;  // valid channels, at most a vector's
  float* out;
  int64_t out_step;
  const float* bias;      // or null
  const float* residual;  // or null
  int64_t residual_step;
  bool clamp;
  float low, high;
};

using DepthwiseFn = void (*)(const DepthwiseArgs& args) noexcept;

struct DepthwiseKernels {
  int lanes;
  DepthwiseFn whole[kMaxDepthwisePixels + 1];    // by number of pixels; args.lanes is `lanes`
  DepthwiseFn partial[kMaxDepthwisePixels + 1];  // fewer channels: nothing beyond them is read or written
};

const DepthwiseKernels& depthwise_kernels(Isa isa);  // REQUIRES: the machine has `isa` (to run them)

}  // namespace flywheel::kernels
