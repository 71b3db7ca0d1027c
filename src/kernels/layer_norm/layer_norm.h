// SPDX-License-Identifier: Apache-2.0
// Family layer_norm: Y = (X - mean) / sqrt(var + epsilon) * scale + bias over the trailing dims from `axis`; with rms
// the mean is not subtracted and var is the mean square. Operands: inputs[0] X contiguous; inputs[1] scale, inputs[2]
// bias when there (both with the normalized extent); outputs[0] Y like X. f32 (reference: also f64). ints: [axis, rms];
// floats: [epsilon].
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

struct LayerNormParams {
  int64_t rows = 0, length = 0;
  bool rms = false, has_bias = false;
  float epsilon = 1e-5F;
  static Result<LayerNormParams> from(const Problem& problem);
};

}  // namespace flywheel::kernels
