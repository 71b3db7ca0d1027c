// SPDX-License-Identifier: Apache-2.0
// Operators that ONNX does not have; passes make them.
//   Pointwise{program, dtype}: any elementwise chain over broadcasting operands; dtype is the output's (default:
//   operand 0's) Attention{scale, mask_kind, causal, masked_rows_to_zero}: q [B,H,Sq,D], k [B,H,Sk,D], v [B,H,Sk,Dv],
//   mask (kinds 1 and 2)
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_pointwise(ir::Node& node) {
  const auto* program = node.find<kernels::Program>("program");
  if (!program) return invalid_argument("attribute program is missing");
  if (Status status = program->validate(); !status.is_ok()) return status.with_context("attribute program");
  if (program->inputs != node.inputs().size()) {
    return invalid_argument(
        fmt::format("its program takes {} inputs and it has {} operands", program->inputs, node.inputs().size()));
  }
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (!node.input(i)) return invalid_argument(fmt::format("operand {} is absent", i));
  }
  FW_ASSIGN_OR_RETURN(DType dtype, dtype_attribute(node, "dtype", node.input(0)->dtype));
  FW_ASSIGN_OR_RETURN(SymShape shape, broadcast_operands(node));
  set_output(node, 0, dtype, std::move(shape));
  return Status::ok();
}

Status infer_attention(ir::Node& node) {
  for (size_t i = 0; i < 3; ++i) FW_RETURN_IF_ERROR(require_rank(node, i, 4, 4));
  FW_RETURN_IF_ERROR(require_float(node, 0));
  FW_RETURN_IF_ERROR(require_same_dtype(node, 0, 3));
  const SymShape &q = node.input(0)->shape, &k = node.input(1)->shape, &v = node.input(2)->shape;
  for (size_t i : {0, 1}) {
    FW_RETURN_IF_ERROR(require_equal(node, q[i], k[i], fmt::format("dim {} of q and k", i)));
    FW_RETURN_IF_ERROR(require_equal(node, q[i], v[i], fmt::format("dim {} of q and v", i)));
  }
  FW_RETURN_IF_ERROR(require_equal(node, q[3], k[3], "head dims of q and k"));
  FW_RETURN_IF_ERROR(require_equal(node, k[2], v[2], "extents of k and v"));
  set_output(node, 0, node.input(0)->dtype, {q[0], q[1], q[2], v[3]});
  int64_t kind = node.int_or("mask_kind", 0);
  const ir::Value* mask = node.input(3);
  if (kind < 0 || kind > 2 || (kind != 0) != (mask != nullptr)) {
    return invalid_argument(fmt::format("attribute mask_kind is {} and it has {}", kind, mask ? "a mask" : "no mask"));
  }
  if (!mask) return Status::ok();
  DType expected = kind == 1 ? node.input(0)->dtype : DType::kBool;
  if (mask->dtype != expected) {
    return invalid_argument(fmt::format("its mask is {}; expected {} for mask_kind {}", dtype_name(mask->dtype),
                                        dtype_name(expected), kind));
  }
  return require_broadcasts_to(node, mask->shape, {q[0], q[1], q[2], k[2]}, "the mask");
}

}  // namespace

extern const Op kPointwise{"Pointwise", 1, -1, 1, 1, {"program", "dtype"}, infer_pointwise};
extern const Op kAttention{"Attention",    3, 4, 1, 1, {"scale", "mask_kind", "causal", "masked_rows_to_zero"},
                           infer_attention};

}  // namespace flywheel::ops
