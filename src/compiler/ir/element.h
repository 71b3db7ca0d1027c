// SPDX-License-Identifier: Apache-2.0
// One element of a tensor from a number, converted as ONNX Cast does: floats round to nearest even, integers drop the
// fraction and saturate (NaN gives 0), bool is != 0.
#pragma once

#include <cstddef>

#include "flywheel/dtype.h"

namespace flywheel::ir {

// Writes dtype_size(dtype) bytes.
void store_element(DType dtype, double value, std::byte* to);

}  // namespace flywheel::ir
