// SPDX-License-Identifier: Apache-2.0
// Division of integers that rounds down, and its remainder: what floor() and mod() of shape expressions mean. Shared by
// DimExpr and the engine's evaluator, which must agree to the last bit. Pure functions.
#pragma once

#include <cstdint>

namespace flywheel {

inline int64_t floor_div_int(int64_t a, int64_t b) {  // REQUIRES: b != 0 and not (INT64_MIN, -1)
  int64_t q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}

inline int64_t mod_int(int64_t a, int64_t b) {  // REQUIRES: b != 0
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

}  // namespace flywheel
