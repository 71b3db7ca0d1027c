// SPDX-License-Identifier: Apache-2.0
// Operators that move elements: all lower to copies between views, or to none.
//   Transpose{perm}  Concat{axis}  Split{axis, split | num_outputs}  Expand{shape}  Tile{repeats}
//   Pad{pads, mode: "constant" | "edge" | "reflect" | "wrap", value}
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_transpose(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> perm, require_ints(node, "perm"));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool valid = perm.size() == x.shape.size();
  for (size_t i = 0; valid && i < sorted.size(); ++i) valid = sorted[i] == static_cast<int64_t>(i);
  if (!valid) {
    return invalid_argument(
        fmt::format("attribute perm is no order of the {} dims of {}", x.rank(), sym_shape_to_string(x.shape)));
  }
  SymShape shape;
  for (int64_t i : perm) shape.push_back(x.shape[static_cast<size_t>(i)]);
  set_output(node, 0, x.dtype, std::move(shape));
  if (x.rank() <= 1) set_elements_of(node, 0, x.known_elements());
  return Status::ok();
}

Status infer_concat(ir::Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (!node.input(i)) return invalid_argument(fmt::format("operand {} is absent", i));
  }
  if (!node.attributes.contains("axis")) return invalid_argument("attribute axis is missing");
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  SymShape shape = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), shape.size()));
  std::optional<Elements> elements = node.input(0)->known_elements();
  for (size_t i = 1; i < node.inputs().size(); ++i) {
    const SymShape& other = node.input(i)->shape;
    if (other.size() != shape.size()) {
      return invalid_argument(fmt::format("operand 0 has shape {} and operand {} {}; expected equal ranks",
                                          sym_shape_to_string(node.input(0)->shape), i, sym_shape_to_string(other)));
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == axis) {
        shape[d] = shape[d] + other[d];
      } else {
        FW_RETURN_IF_ERROR(require_equal(node, shape[d], other[d], fmt::format("dim {} of operands 0 and {}", d, i)));
        if (other[d].is_constant()) shape[d] = other[d];
      }
    }
    std::optional<Elements> more = elements ? node.input(i)->known_elements() : std::nullopt;
    if (elements && more && elements->size() + more->size() <= static_cast<size_t>(ir::kMaxKnownElements)) {
      elements->insert(elements->end(), more->begin(), more->end());
    } else {
      elements.reset();
    }
  }
  set_output(node, 0, node.input(0)->dtype, std::move(shape));
  set_elements_of(node, 0, elements);
  return Status::ok();
}

Status infer_split(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), x.shape.size()));
  size_t count = node.outputs().size();
  SymShape parts;
  if (std::optional<SymShape> split = dims_attribute(node, "split")) {
    parts = *split;
    if (parts.size() != count) {
      return invalid_argument(fmt::format("attribute split has {} entries for {} outputs", parts.size(), count));
    }
    DimExpr total(0);
    for (const DimExpr& part : parts) {
      if (part.upper_bound().value_or(0) < 0)
        return invalid_argument(fmt::format("attribute split has {}", part.to_string()));
      total = total + part;
    }
    FW_RETURN_IF_ERROR(require_equal(node, total, x.shape[axis], fmt::format("the sum of split and dim {}", axis)));
  } else {
    // Equal parts, the last one smaller where they do not come out even.
    int64_t n = static_cast<int64_t>(count);
    if (node.int_or("num_outputs", n) != n) {
      return invalid_argument(
          fmt::format("attribute num_outputs is {} for {} outputs", node.int_or("num_outputs", n), n));
    }
    DimExpr part = DimExpr::floor_div(x.shape[axis] + (n - 1), n);
    for (int64_t i = 0; i < n; ++i) {
      DimExpr left = x.shape[axis] - DimExpr(i) * part;
      bool certain = i == 0 || DimExpr(n) * part == x.shape[axis];
      if (n == 2 && i == 1) part = left;
      parts.push_back(certain || n == 2 ? part : DimExpr::max(DimExpr::min(part, left), 0));
    }
  }
  std::optional<Elements> elements = x.known_elements();
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    SymShape shape = x.shape;
    shape[axis] = parts[i];
    set_output(node, i, x.dtype, std::move(shape));
    std::optional<int64_t> extent = parts[i].constant();
    if (!elements || !extent || at + static_cast<size_t>(*extent) > elements->size()) {
      elements.reset();
      continue;
    }
    auto first = elements->begin() + static_cast<ptrdiff_t>(at);
    set_elements(node, i, Elements(first, first + *extent));
    at += static_cast<size_t>(*extent);
  }
  return Status::ok();
}

Status infer_expand(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(SymShape target, require_dims(node, "shape"));
  for (DimExpr& dim : target) {
    // ONNX leaves -1 undefined; exporters write it for "as it is".
    if (dim == DimExpr(-1)) dim = 1;
  }
  FW_ASSIGN_OR_RETURN(SymShape shape, broadcast(node, x.shape, target));
  set_output(node, 0, x.dtype, std::move(shape));
  std::optional<Elements> from = x.known_elements();
  std::optional<int64_t> count = product(node.output()->shape).constant();
  if (from && count && *count >= 0 && *count <= ir::kMaxKnownElements) {
    if (from->size() == 1) from->assign(static_cast<size_t>(*count), DimExpr((*from)[0]));
    set_elements(node, 0, *std::move(from));
  }
  return Status::ok();
}

Status infer_tile(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(SymShape repeats, require_dims(node, "repeats"));
  if (repeats.size() != x.shape.size()) {
    return invalid_argument(
        fmt::format("attribute repeats has {} entries for shape {}", repeats.size(), sym_shape_to_string(x.shape)));
  }
  SymShape shape;
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i].upper_bound().value_or(0) < 0)
      return invalid_argument(fmt::format("attribute repeats has {}", repeats[i].to_string()));
    shape.push_back(x.shape[i] * repeats[i]);
  }
  set_output(node, 0, x.dtype, std::move(shape));
  std::optional<Elements> from = x.known_elements();
  std::optional<int64_t> times = repeats.size() == 1 ? repeats[0].constant() : std::nullopt;
  if (from && times && *times <= ir::kMaxKnownElements) {
    Elements elements;
    for (int64_t i = 0; i < *times; ++i) elements.insert(elements.end(), from->begin(), from->end());
    set_elements(node, 0, std::move(elements));
  }
  return Status::ok();
}

Status infer_pad(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(SymShape pads, require_dims(node, "pads"));
  size_t rank = x.shape.size();
  if (pads.size() != 2 * rank) {
    return invalid_argument(
        fmt::format("attribute pads has {} entries; expected {}, a begin and an end for each dim of {}", pads.size(),
                    2 * rank, sym_shape_to_string(x.shape)));
  }
  std::string mode = node.string_or("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") {
    return invalid_argument(fmt::format("attribute mode is \"{}\"; expected constant, edge, reflect or wrap", mode));
  }
  if (node.find<ir::ConstTensor>("value")) return invalid_argument("attribute value is a tensor; expected a number");
  SymShape shape;
  for (size_t i = 0; i < rank; ++i) shape.push_back(x.shape[i] + pads[i] + pads[rank + i]);
  set_output(node, 0, x.dtype, std::move(shape));
  return Status::ok();
}

}  // namespace

extern const Op kTranspose{"Transpose", 1, 1, 1, 1, {"perm"}, infer_transpose};
extern const Op kConcat{"Concat", 1, -1, 1, 1, {"axis"}, infer_concat};
extern const Op kSplit{"Split", 1, 1, 1, -1, {"axis", "split", "num_outputs"}, infer_split};
extern const Op kExpand{"Expand", 1, 1, 1, 1, {"shape"}, infer_expand};
extern const Op kTile{"Tile", 1, 1, 1, 1, {"repeats"}, infer_tile};
extern const Op kPad{"Pad", 1, 1, 1, 1, {"pads", "mode", "value"}, infer_pad};

}  // namespace flywheel::ops
