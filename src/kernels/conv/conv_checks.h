// SPDX-License-Identifier: Apache-2.0
// The checks that conv and conv_transpose have in common. Used by their params only.
#pragma once

#include <vector>

#include "kernels/conv/conv.h"

namespace flywheel::kernels {

// Count and range of the attributes.
Result<ConvParams> conv_params_from_ints(const std::vector<int64_t>& ints, Family family);
// Ranks, types and strides of X, W and Y. REQUIRES: check_operands() is OK.
Status check_conv_operands(const Problem& problem);

}  // namespace flywheel::kernels
