// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/matmul.h"

#include <fmt/format.h>

namespace flywheel::kernels {

Result<MatMulParams> MatMulParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kMatMul, 2));
  FW_RETURN_IF_ERROR(check_epilogue(problem, 2));
  const TensorDesc &a = problem.inputs[0], &b = problem.inputs[1], &y = problem.outputs[0];
  auto misfit = [&](std::string_view what) {
    return invalid_argument(
        fmt::format("matmul {}; found A {}, B {}, Y {}", what, a.to_string(), b.to_string(), y.to_string()));
  };
  if (!problem.ints.empty())
    return invalid_argument(fmt::format("matmul takes no attributes; found {}", problem.ints.size()));
  const int rank = a.rank();
  if (rank < 2 || b.rank() != rank || y.rank() != rank) return misfit("takes operands of one rank, at least 2");
  const bool known = a.dtype == DType::kFloat32 || a.dtype == DType::kFloat64 || a.dtype == DType::kInt32 ||
                     a.dtype == DType::kInt64 || a.dtype == DType::kUInt32 || a.dtype == DType::kUInt64;
  if (a.dtype != b.dtype || !known) return misfit("takes A and B of one type, f32, f64 or a 32- or 64-bit integer");
  MatMulParams params;
  params.m = a.dims[rank - 2];
  params.k = a.dims[rank - 1];
  params.n = b.dims[rank - 1];
  if (b.dims[rank - 2] != params.k || y.dims[rank - 2] != params.m || y.dims[rank - 1] != params.n) {
    return misfit("shapes do not fit");
  }
  for (int d = 0; d < rank - 2; ++d) {
    const int64_t at = a.dims[d], bt = b.dims[d], batch = at == 1 ? bt : at;
    if ((bt != batch && bt != 1) || y.dims[d] != batch) return misfit("batch dims do not fit");
    params.batch.push_back(batch);
  }
  if (params.n > 1 && y.strides[rank - 1] != 1) return misfit("needs an output with rows of stride 1");
  return params;
}

}  // namespace flywheel::kernels
