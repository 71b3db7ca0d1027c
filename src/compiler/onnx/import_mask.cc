// SPDX-License-Identifier: Apache-2.0
// Trilu, EyeLike and OneHot: comparisons of positions. Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"
#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

// column - row against k: `op` gives true where the element is kept.
Result<ir::Value*> compare_diagonal(NodeContext& node, const SymShape& shape, std::string_view op, int64_t k) {
  const auto rank = static_cast<int64_t>(shape.size());
  FW_ASSIGN_OR_RETURN(ir::Value * rows, node.positions(shape, rank - 2));
  FW_ASSIGN_OR_RETURN(ir::Value * columns, node.positions(shape, rank - 1));
  if (k != 0) {
    FW_ASSIGN_OR_RETURN(rows, node.emit("Add", {rows, node.constant(make_int_tensor(DType::kInt64, {}, {k}))}));
  }
  return node.emit(op, {columns, rows});
}

}  // namespace

Status import_trilu(NodeContext& node) {
  const bool upper = node.get_bool("upper", true);
  ir::Value* x = node.input(0);
  if (x->rank() < 2) return invalid_argument(fmt::format("its input has {} dims; at least 2 are expected", x->rank()));
  int64_t k = 0;
  if (node.input(1) != nullptr) {
    FW_ASSIGN_OR_RETURN(std::vector<int64_t> values, node.ints_operand(1, "k"));
    if (values.size() != 1) return invalid_argument("its k must be one value");
    k = values[0];
  }
  FW_ASSIGN_OR_RETURN(ir::Value * kept, compare_diagonal(node, x->shape, upper ? "GreaterOrEqual" : "LessOrEqual", k));
  return node.emit_outputs("Where", {kept, x, node.scalar(x->dtype, 0)});
}

Status import_eye_like(NodeContext& node) {
  ir::Value* x = node.input(0);
  const int64_t type = node.get_int("dtype", 0), k = node.get_int("k", 0);
  const auto dtype = type == kTypeUndefined ? std::optional(x->dtype) : to_dtype(type);
  if (!dtype) return unsupported(fmt::format("a result of type {}", tensor_type_name(type)));
  if (x->rank() != 2) return invalid_argument(fmt::format("its input has {} dims; 2 are expected", x->rank()));
  FW_ASSIGN_OR_RETURN(ir::Value * diagonal, compare_diagonal(node, x->shape, "Equal", k));
  FW_ASSIGN_OR_RETURN(ir::Value * y, node.cast(diagonal, *dtype));
  node.set_output(0, y);
  return Status::ok();
}

// values[1] where the index is the position along the new axis, values[0] elsewhere; indices out of range give
// values[0].
Status import_one_hot(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(std::vector<double> depths, node.floats_operand(1, "depth"));
  if (depths.size() != 1 || !(depths[0] >= 1) || depths[0] > 1e9)
    return invalid_argument("its depth must be one positive number");
  const auto depth = static_cast<int64_t>(depths[0]);
  ir::Value *indices = node.input(0), *values = node.input(2);
  if (values->rank() != 1 || values->shape[0] != DimExpr(2)) return invalid_argument("its values must be two");
  if (indices->rank() + 1 > kMaxRank) return unsupported(fmt::format("its result has more than {} dims", kMaxRank));
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", -1), indices->rank(), "axis", 1));
  FW_ASSIGN_OR_RETURN(indices, node.cast(indices, DType::kInt64));
  const auto integer = [&](int64_t value) { return node.constant(make_int_tensor(DType::kInt64, {}, {value})); };
  FW_ASSIGN_OR_RETURN(ir::Value * is_negative, node.emit("Less", {indices, integer(0)}));
  FW_ASSIGN_OR_RETURN(ir::Value * from_end, node.emit("Add", {indices, integer(depth)}));
  FW_ASSIGN_OR_RETURN(indices, node.emit("Where", {is_negative, from_end, indices}));
  FW_ASSIGN_OR_RETURN(indices, node.emit("Unsqueeze", {indices}, {{"axes", std::vector<int64_t>{axis}}}));
  SymShape shape = indices->shape;
  shape[axis] = depth;
  FW_ASSIGN_OR_RETURN(ir::Value * positions, node.positions(shape, axis));
  FW_ASSIGN_OR_RETURN(ir::Value * is_hot, node.emit("Equal", {indices, positions}));
  FW_ASSIGN_OR_RETURN(ir::Value * off, node.emit("Gather", {values, integer(0)}, {{"axis", int64_t{0}}}));
  FW_ASSIGN_OR_RETURN(ir::Value * on, node.emit("Gather", {values, integer(1)}, {{"axis", int64_t{0}}}));
  return node.emit_outputs("Where", {is_hot, on, off});
}

}  // namespace flywheel::onnx_import
