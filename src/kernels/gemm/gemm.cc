// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/gemm.h"

#include <fmt/format.h>

namespace flywheel::kernels {

Result<GemmParams> GemmParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kGemm, 2));
  FW_RETURN_IF_ERROR(check_epilogue(problem, 2));
  const TensorDesc &a = problem.inputs[0], &b = problem.inputs[1], &y = problem.outputs[0];
  if (problem.ints.size() != 1 || (problem.ints[0] != 0 && problem.ints[0] != 1)) {
    return invalid_argument(fmt::format("gemm takes one attribute, trans_b of 0 or 1; found {} attributes{}",
                                        problem.ints.size(),
                                        problem.ints.empty() ? "" : fmt::format(", the first {}", problem.ints[0])));
  }
  if (a.rank() != 2 || b.rank() != 2 || y.rank() != 2) {
    return invalid_argument(
        fmt::format("gemm takes matrices; found A {}, B {}, Y {}", a.to_string(), b.to_string(), y.to_string()));
  }
  GemmParams params;
  params.trans_b = problem.ints[0] == 1;
  params.m = a.dims[0];
  params.k = a.dims[1];
  params.n = b.dims[params.trans_b ? 0 : 1];
  const int64_t b_k = b.dims[params.trans_b ? 1 : 0];
  if (b_k != params.k || y.dims[0] != params.m || y.dims[1] != params.n) {
    return invalid_argument(fmt::format("gemm shapes do not fit: A {}, B {}{}, Y {}", dims_to_string(a.dims),
                                        dims_to_string(b.dims), params.trans_b ? " transposed" : "",
                                        dims_to_string(y.dims)));
  }
  const bool known = a.dtype == DType::kFloat32 || a.dtype == DType::kFloat64;
  if (a.dtype != b.dtype || !known) {
    return invalid_argument(fmt::format("gemm takes A and B of one type, f32 or f64; found {} and {}",
                                        dtype_name(a.dtype), dtype_name(b.dtype)));
  }
  if (!b.is_contiguous() || (params.k > 1 && a.strides[1] != 1) || (params.n > 1 && y.strides[1] != 1)) {
    return invalid_argument(fmt::format("gemm needs rows of stride 1 and a contiguous B; found A {}, B {}, Y {}",
                                        a.to_string(), b.to_string(), y.to_string()));
  }
  return params;
}

}  // namespace flywheel::kernels
