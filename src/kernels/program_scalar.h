// SPDX-License-Identifier: Apache-2.0
// One element of a Program in double precision: what reference kernels evaluate, and the oracle for the vectorized
// forms. No allocation; any thread.
#pragma once

#include "kernels/program.h"

namespace flywheel::kernels {

// The program's result for one element. `inputs` holds program.inputs values; inputs[0] must be readable even when the
// program is empty (its result then). Integer programs (compute i64) truncate after each division and power.
// REQUIRES: program.validate() is OK.
double evaluate_scalar(const Program& program, const double* inputs);

}  // namespace flywheel::kernels
