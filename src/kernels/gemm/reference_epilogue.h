// SPDX-License-Identifier: Apache-2.0
// What the reference kernels of all contraction families (conv, conv_transpose, gemm, matmul) share: typed element
// access and the epilogue evaluated one element at a time in double precision. Immutable after from(); any thread.
#pragma once

#include <array>
#include <vector>

#include "kernels/problem.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

// Element `index` (counted in elements, may be negative within the buffer) of typed memory. Stores convert as Program
// says: to integers toward zero (saturating, NaN to 0), to bool != 0. f16 and bf16 are not handled: see
// has_scalar_access().
double load_element(const void* data, DType dtype, int64_t index) noexcept;
void store_element(void* data, DType dtype, int64_t index, double value) noexcept;
bool has_scalar_access(DType dtype);

// Strides of `desc` seen from an output of rank `rank`: right-aligned, 0 in every dim that broadcasts.
std::array<int64_t, kMaxRank> broadcast_strides(const TensorDesc& desc, int rank);

class ReferenceEpilogue {
 public:
  // REQUIRES: check_epilogue(problem, main_operands) is OK. kUnsupported for element types without scalar access.
  static Result<ReferenceEpilogue> from(const Problem& problem, size_t main_operands);

  // Writes the output element at `index` (one coordinate for each output dim) from its accumulator.
  void store(const Operands& operands, const int64_t* index, double accumulator) const noexcept;

 private:
  struct View {
    DType dtype;
    std::array<int64_t, kMaxRank> strides;
  };
  int64_t offset(const View& view, const int64_t* index) const noexcept;

  Program program_;
  size_t main_operands_ = 0;
  int rank_ = 0;
  std::vector<View> inputs_;  // the epilogue's operands
  View output_;
};

}  // namespace flywheel::kernels
