// SPDX-License-Identifier: Apache-2.0
// Operators that give the same elements, in order, another shape.
//   Identity  Dropout (inference: the identity)  Reshape{shape, allowzero = 1}  Flatten{axis = 1}  Squeeze{axes}
//   Unsqueeze{axes}
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

// x's elements under a new shape; known ones come along.
void set_same_elements(ir::Node& node, SymShape shape) {
  set_output(node, 0, node.input(0)->dtype, std::move(shape));
  set_elements_of(node, 0, node.input(0)->known_elements());
}

Status infer_identity(ir::Node& node) {
  set_same_elements(node, node.input(0)->shape);
  return Status::ok();
}

Status infer_dropout(ir::Node& node) {
  set_same_elements(node, node.input(0)->shape);
  set_output(node, 1, DType::kBool, node.input(0)->shape);
  return Status::ok();
}

Status infer_reshape(ir::Node& node) {
  const SymShape& from = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(SymShape shape, require_dims(node, "shape"));
  std::optional<size_t> rest;
  for (size_t i = 0; i < shape.size(); ++i) {
    std::optional<int64_t> dim = shape[i].constant();
    if (dim == 0 && node.int_or("allowzero", 1) == 0) {
      if (i >= from.size()) {
        return invalid_argument(fmt::format("dim {} of its shape is 0, which copies from {}: there is no such dim", i,
                                            sym_shape_to_string(from)));
      }
      shape[i] = from[i];
    } else if (dim == -1) {
      if (rest) return invalid_argument("its shape has -1 twice");
      rest = i;
    } else if (shape[i].upper_bound().value_or(0) < 0) {
      return invalid_argument(fmt::format("dim {} of its shape is {}", i, shape[i].to_string()));
    }
  }
  DimExpr count = product(from);
  if (rest) {
    shape[*rest] = 1;
    DimExpr others = product(shape);
    if (others == DimExpr(0)) return invalid_argument("its shape has a 0 beside -1, so that -1 could be anything");
    shape[*rest] = DimExpr::floor_div(count, others);
  }
  Status status = require_equal(node, count, product(shape), "element counts before and after");
  if (!status.is_ok()) {
    return status.with_context(
        fmt::format("reshape of {} to {}", sym_shape_to_string(from), sym_shape_to_string(shape)));
  }
  set_same_elements(node, std::move(shape));
  return Status::ok();
}

Status infer_flatten(ir::Node& node) {
  const SymShape& from = node.input(0)->shape;
  int64_t axis = node.int_or("axis", 1);
  size_t at = from.size();
  if (axis != static_cast<int64_t>(from.size())) {
    FW_ASSIGN_OR_RETURN(at, axis_in(axis, from.size()));
  }
  set_output(node, 0, node.input(0)->dtype, {product(from, 0, at), product(from, at)});
  return Status::ok();
}

Status infer_squeeze(ir::Node& node) {
  const SymShape& from = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> given, require_ints(node, "axes"));
  FW_ASSIGN_OR_RETURN(std::vector<size_t> axes, axes_in(given, from.size()));
  SymShape shape = from;
  for (auto it = axes.rbegin(); it != axes.rend(); ++it) {
    FW_RETURN_IF_ERROR(
        require_equal(node, shape[*it], 1, fmt::format("dim {} of {} is removed", *it, sym_shape_to_string(from))));
    shape.erase(shape.begin() + static_cast<ptrdiff_t>(*it));
  }
  set_same_elements(node, std::move(shape));
  return Status::ok();
}

Status infer_unsqueeze(ir::Node& node) {
  SymShape shape = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> given, require_ints(node, "axes"));
  FW_ASSIGN_OR_RETURN(std::vector<size_t> axes, axes_in(given, shape.size() + given.size()));
  for (size_t axis : axes) shape.insert(shape.begin() + static_cast<ptrdiff_t>(axis), DimExpr(1));
  set_same_elements(node, std::move(shape));
  return Status::ok();
}

}  // namespace

extern const Op kIdentity{"Identity", 1, 1, 1, 1, {}, infer_identity};
extern const Op kDropout{"Dropout", 1, 1, 1, 2, {"ratio"}, infer_dropout};
extern const Op kReshape{"Reshape", 1, 1, 1, 1, {"shape", "allowzero"}, infer_reshape};
extern const Op kFlatten{"Flatten", 1, 1, 1, 1, {"axis"}, infer_flatten};
extern const Op kSqueeze{"Squeeze", 1, 1, 1, 1, {"axes"}, infer_squeeze};
extern const Op kUnsqueeze{"Unsqueeze", 1, 1, 1, 1, {"axes"}, infer_unsqueeze};

}  // namespace flywheel::ops
