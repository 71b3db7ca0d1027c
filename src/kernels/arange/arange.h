// SPDX-License-Identifier: Apache-2.0
// Family arange: Y[i] = start + i * step, what ONNX Range gives once its extent is known as an expression of dims.
// Operands: no inputs; outputs[0] Y [n], i32, i64, f32 or f64. Integer outputs: ints [start, step]; float outputs:
// floats.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

Status check_arange(const Problem& problem);

}  // namespace flywheel::kernels
