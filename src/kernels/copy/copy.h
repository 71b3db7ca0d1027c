// SPDX-License-Identifier: Apache-2.0
// Family copy: moves elements between two views. Transpose, Slice (negative strides), Expand (zero strides), a part of
// a Concat and layout changes are all copies between suitable views. With pads it also fills a border. Operands:
// inputs[0] X, outputs[0] Y, same type, rank <= 8, any strides (Y: none zero). ints: [pad_mode, fill_bits,
// before...(rank), after...(rank)] or empty for a plain copy, where X and Y have equal dims.
//   With pads Y's dims are X's + before + after (each may be negative: crops). pad_mode 0 constant (fill_bits: the
//   element's bits, low bytes), 1 edge, 2 reflect, 3 wrap.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

enum class PadMode : int64_t { kConstant = 0, kEdge = 1, kReflect = 2, kWrap = 3 };

Status check_copy(const Problem& problem);

}  // namespace flywheel::kernels
