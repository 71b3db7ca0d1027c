// SPDX-License-Identifier: Apache-2.0
// Family pointwise: Problem::program over elements, run in tiles that fit in L1.
// Operands: inputs[i] is the program's input i, broadcasting NumPy-style to outputs[0]; any types and strides.
// outputs[0] any type and strides (no zero strides). No ints.
// An output never overlaps an input, except that it may be exactly the same memory as an input of the same desc.
#pragma once

#include "kernels/problem.h"

namespace flywheel::kernels {

// Checks operand count, broadcasting and the program.
Status check_pointwise(const Problem& problem);

}  // namespace flywheel::kernels
