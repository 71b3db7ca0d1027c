// SPDX-License-Identifier: Apache-2.0
// Reshape, Flatten, Squeeze, Unsqueeze: the new shape is worked out here, so that our operators carry plain ones.
// Called through import_list.inc.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

DimExpr product(const SymShape& shape, size_t begin, size_t end) {
  DimExpr result(1);
  for (size_t i = begin; i < end; ++i) result = result * shape[i];
  return result;
}

// "axes" as an attribute before opset 13, an operand since. Nullopt when they are not given.
Result<std::optional<std::vector<int64_t>>> axes_of(NodeContext& node) {
  if (node.opset() < 13) return node.get_ints("axes");
  if (node.input(1) == nullptr) return std::optional<std::vector<int64_t>>();
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> axes, node.ints_operand(1, "axes"));
  return std::optional(std::move(axes));
}

// Ascending and in range for a tensor of that rank.
Status normalize_axes(const NodeContext& node, int rank, std::vector<int64_t>* axes) {
  for (int64_t& axis : *axes) {
    FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, rank));
  }
  std::sort(axes->begin(), axes->end());
  if (std::adjacent_find(axes->begin(), axes->end()) != axes->end()) return invalid_argument("an axis is given twice");
  return Status::ok();
}

}  // namespace

Status import_reshape(NodeContext& node) {
  const bool allow_zero = node.opset() >= 14 && node.get_bool("allowzero", false);
  const SymShape& from = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(SymShape shape, node.dims_operand(1, "shape"));
  int rest = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto dim = shape[i].constant();
    if (dim && *dim == 0 && !allow_zero) {
      if (i >= from.size()) {
        return invalid_argument(fmt::format("its shape copies dim {} of an input with {} dims", i, from.size()));
      }
      shape[i] = from[i];
    } else if (dim && *dim == -1) {
      if (rest >= 0) return invalid_argument("its shape has two dims of -1");
      rest = static_cast<int>(i);
    } else if (dim && *dim < 0) {
      return invalid_argument(fmt::format("dim {} of its shape is {}", i, *dim));
    }
  }
  if (rest >= 0) {
    shape[rest] = 1;
    const DimExpr all = product(from, 0, from.size()), others = product(shape, 0, shape.size());
    const auto all_known = all.constant(), others_known = others.constant();
    if (others_known && *others_known == 0) {
      return invalid_argument(fmt::format("its shape has a dim of 0, so that the one of -1 is open"));
    }
    if (all_known && others_known && *all_known % *others_known != 0) {
      return invalid_argument(fmt::format("{} elements cannot be reshaped to {} with -1 for dim {}", *all_known,
                                          sym_shape_to_string(shape), rest));
    }
    shape[rest] = DimExpr::floor_div(all, others);
  }
  return node.emit_outputs("Reshape", {node.input(0)}, {{"shape", std::move(shape)}});
}

Status import_flatten(NodeContext& node) {
  const SymShape& from = node.input(0)->shape;
  int64_t axis = node.get_int("axis", 1);
  if (axis != static_cast<int64_t>(from.size())) {  // which puts everything into the first dim
    FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, static_cast<int>(from.size())));
  }
  SymShape shape{product(from, 0, axis), product(from, axis, from.size())};
  return node.emit_outputs("Reshape", {node.input(0)}, {{"shape", std::move(shape)}});
}

Status import_squeeze(NodeContext& node) {
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(auto given, axes_of(node));
  std::vector<int64_t> axes;
  if (given) {
    axes = *std::move(given);
    FW_RETURN_IF_ERROR(normalize_axes(node, x->rank(), &axes));
  } else {
    for (int i = 0; i < x->rank(); ++i) {
      const auto dim = x->shape[i].constant();
      if (!dim)
        return unsupported(fmt::format("without axes, whether dim {} of {} goes away depends on its extent; give axes",
                                       i, sym_shape_to_string(x->shape)));
      if (*dim == 1) axes.push_back(i);
    }
  }
  if (axes.empty()) {
    node.set_output(0, x);
    return Status::ok();
  }
  return node.emit_outputs("Squeeze", {x}, {{"axes", std::move(axes)}});
}

Status import_unsqueeze(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(auto axes, axes_of(node));
  if (!axes) return invalid_argument("it has no axes");
  if (axes->empty()) {
    node.set_output(0, node.input(0));
    return Status::ok();
  }
  if (axes->size() > static_cast<size_t>(kMaxRank))
    return unsupported(fmt::format("its result has more than {} dims", kMaxRank));
  FW_RETURN_IF_ERROR(normalize_axes(node, node.input(0)->rank() + static_cast<int>(axes->size()), &*axes));
  return node.emit_outputs("Unsqueeze", {node.input(0)}, {{"axes", *std::move(axes)}});
}

}  // namespace flywheel::onnx_import
