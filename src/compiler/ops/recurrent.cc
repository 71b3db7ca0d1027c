// SPDX-License-Identifier: Apache-2.0
// Recurrent{cell, reverse, activations, activation_alpha, activation_beta, clip, input_forget}: one direction of an
// RNN, GRU or LSTM after its input's product, as kernels/recurrent/recurrent.h has it. Operands: P, R, then h0, c0,
// lengths, peepholes and candidate bias, each absent or there; results: Y, the last h and, of an LSTM, the last c.
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_recurrent(ir::Node& node) {
  FW_RETURN_IF_ERROR(require_rank(node, 0, 3, 3));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 2, 2));
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (node.input(i)->dtype != DType::kFloat32)
      return unsupported(
          fmt::format("its operand {} is {}; only f32 is supported", i, dtype_name(node.input(i)->dtype)));
  }
  const std::string cell = node.string_or("cell", "");
  const int64_t gates = cell == "RNN" ? 1 : cell == "GRU" ? 3 : cell == "LSTM" ? 4 : 0;
  if (gates == 0) return invalid_argument(fmt::format("attribute cell is \"{}\"; expected RNN, GRU or LSTM", cell));
  const SymShape &p = node.input(0)->shape, &r = node.input(1)->shape;
  FW_RETURN_IF_ERROR(require_equal(node, p[2], r[0], "the last dim of P and the first of R"));
  FW_RETURN_IF_ERROR(require_equal(node, r[0], r[1] * DimExpr(gates), "the first dim of R and its gates' units"));
  const SymShape state = {p[1], r[1]};
  for (size_t i : {size_t{2}, size_t{3}}) {
    if (i >= node.inputs().size() || node.input(i) == nullptr) continue;
    FW_RETURN_IF_ERROR(require_rank(node, i, 2, 2));
    FW_RETURN_IF_ERROR(require_equal(node, node.input(i)->shape[0], state[0], "the batch of the first state"));
    FW_RETURN_IF_ERROR(require_equal(node, node.input(i)->shape[1], state[1], "the units of the first state"));
  }
  set_output(node, 0, DType::kFloat32, {p[0], p[1], r[1]});
  for (size_t i = 1; i < node.outputs().size(); ++i) set_output(node, i, DType::kFloat32, state);
  return Status::ok();
}

}  // namespace

extern const Op kRecurrent{
    "Recurrent",
    2,
    7,
    2,
    3,
    {"cell", "reverse", "activations", "activation_alpha", "activation_beta", "clip", "input_forget"},
    infer_recurrent};

}  // namespace flywheel::ops
