// SPDX-License-Identifier: Apache-2.0
// Matrix products.
//   Gemm{transA, transB, alpha, beta, program}: a [..., K] x b [K, N] and ONNX's C; canonical: no transA, alpha, beta
//   MatMul{program}: NumPy's matmul
// With a program the operands after the first two are the epilogue's.
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_gemm(ir::Node& node) {
  const ir::Value &a = *node.input(0), &b = *node.input(1);
  FW_RETURN_IF_ERROR(require_same_dtype(node, 0, 2));
  bool trans_a = node.int_or("transA", 0) != 0, trans_b = node.int_or("transB", 0) != 0;
  FW_RETURN_IF_ERROR(require_rank(node, 0, trans_a ? 2 : 1, trans_a ? 2 : kMaxRank));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 2, 2));
  SymShape shape = a.shape;
  if (trans_a) std::swap(shape[0], shape[1]);
  FW_RETURN_IF_ERROR(require_equal(
      node, shape.back(), b.shape[trans_b ? 1 : 0],
      fmt::format("inner dims of {} and {}", sym_shape_to_string(a.shape), sym_shape_to_string(b.shape))));
  shape.back() = b.shape[trans_b ? 0 : 1];
  set_output(node, 0, a.dtype, std::move(shape));
  if (node.find<kernels::Program>("program")) {
    if (trans_a || node.float_or("alpha", 1) != 1 || node.float_or("beta", 1) != 1) {
      return invalid_argument("it has a program beside transA, alpha or beta");
    }
    return check_epilogue(node, 2);
  }
  if (node.inputs().size() > 3)
    return invalid_argument(fmt::format("it has {} operands and no program; expected 2 or 3", node.inputs().size()));
  if (!node.input(2)) return Status::ok();
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  return require_broadcasts_to(node, node.input(2)->shape, node.output()->shape, "operand 2");
}

Status infer_matmul(ir::Node& node) {
  const ir::Value &a = *node.input(0), &b = *node.input(1);
  FW_RETURN_IF_ERROR(require_same_dtype(node, 0, 2));
  FW_RETURN_IF_ERROR(require_rank(node, 0, 1, kMaxRank));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 1, kMaxRank));
  SymShape left = a.shape, right = b.shape;
  if (a.rank() == 1) left.insert(left.begin(), DimExpr(1));
  if (b.rank() == 1) right.push_back(DimExpr(1));
  FW_RETURN_IF_ERROR(require_equal(
      node, left.back(), right[right.size() - 2],
      fmt::format("inner dims of {} and {}", sym_shape_to_string(a.shape), sym_shape_to_string(b.shape))));
  FW_ASSIGN_OR_RETURN(SymShape shape, broadcast(node, SymShape(left.begin(), left.end() - 2),
                                                SymShape(right.begin(), right.end() - 2)));
  if (a.rank() > 1) shape.push_back(left[left.size() - 2]);
  if (b.rank() > 1) shape.push_back(right.back());
  set_output(node, 0, a.dtype, std::move(shape));
  if (!node.find<kernels::Program>("program") && node.inputs().size() > 2) {
    return invalid_argument(fmt::format("it has {} operands and no program; expected 2", node.inputs().size()));
  }
  return check_epilogue(node, 2);
}

}  // namespace

extern const Op kGemm{"Gemm", 2, -1, 1, 1, {"transA", "transB", "alpha", "beta", "program"}, infer_gemm};
extern const Op kMatMul{"MatMul", 2, -1, 1, 1, {"program"}, infer_matmul};

}  // namespace flywheel::ops
