// SPDX-License-Identifier: Apache-2.0
// What puts elements elsewhere by their index or their value.
//   ScatterElements{axis = 0, reduction}, ScatterND{reduction}: data, indices, updates; reduction "none" | "add" |
//   "mul" | "max" | "min"
//   TopK{k, axis = -1, largest = 1, sorted = 1}: values and i64 indices
//   CumSum{axis, exclusive = 0, reverse = 0}
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status check_scatter(const ir::Node& node) {
  FW_RETURN_IF_ERROR(require_rank(node, 0, 1, kMaxRank));
  FW_RETURN_IF_ERROR(require_index(node, 1));
  if (node.input(0)->dtype != node.input(2)->dtype) {
    return invalid_argument(fmt::format("data is {} and updates are {}; expected one type",
                                        dtype_name(node.input(0)->dtype), dtype_name(node.input(2)->dtype)));
  }
  std::string reduction = node.string_or("reduction", "none");
  for (const char* known : {"none", "add", "mul", "max", "min"}) {
    if (reduction == known) return Status::ok();
  }
  return invalid_argument(fmt::format("attribute reduction is \"{}\"; expected none, add, mul, max or min", reduction));
}

Status infer_scatter_elements(ir::Node& node) {
  FW_RETURN_IF_ERROR(check_scatter(node));
  const SymShape &data = node.input(0)->shape, &indices = node.input(1)->shape, &updates = node.input(2)->shape;
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), data.size()));
  if (indices.size() != data.size() || updates.size() != data.size()) {
    return invalid_argument(fmt::format("data, indices and updates have shapes {}, {} and {}; expected equal ranks",
                                        sym_shape_to_string(data), sym_shape_to_string(indices),
                                        sym_shape_to_string(updates)));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    FW_RETURN_IF_ERROR(require_equal(node, indices[i], updates[i], fmt::format("dim {} of indices and updates", i)));
    if (i != axis && surely_less(data[i], indices[i])) {
      return invalid_argument(fmt::format("dim {} of the indices is {}, more than the data's {}", i,
                                          indices[i].to_string(), data[i].to_string()));
    }
  }
  set_output(node, 0, node.input(0)->dtype, data);
  return Status::ok();
}

Status infer_scatter_nd(ir::Node& node) {
  FW_RETURN_IF_ERROR(check_scatter(node));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 1, kMaxRank));
  const SymShape &data = node.input(0)->shape, &indices = node.input(1)->shape, &updates = node.input(2)->shape;
  std::optional<int64_t> depth = indices.back().constant();
  if (!depth)
    return unsupported(fmt::format("the last dim of its indices is {}; it must be fixed", indices.back().to_string()));
  if (*depth < 0 || *depth > static_cast<int64_t>(data.size())) {
    return invalid_argument(fmt::format("the last dim of its indices is {}; expected at most {}", *depth, data.size()));
  }
  SymShape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + *depth, data.end());
  if (updates.size() != expected.size()) {
    return invalid_argument(
        fmt::format("updates have shape {}; expected {}", sym_shape_to_string(updates), sym_shape_to_string(expected)));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    FW_RETURN_IF_ERROR(require_equal(node, updates[i], expected[i], fmt::format("dim {} of the updates", i)));
  }
  set_output(node, 0, node.input(0)->dtype, data);
  return Status::ok();
}

Status infer_top_k(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_RETURN_IF_ERROR(require_rank(node, 0, 1, kMaxRank));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", -1), x.shape.size()));
  int64_t k = node.int_or("k", -1);
  if (k < 0 || surely_less(x.shape[axis], k)) {
    return invalid_argument(fmt::format("attribute k is {} for an extent of {}", k, x.shape[axis].to_string()));
  }
  SymShape shape = x.shape;
  shape[axis] = k;
  set_output(node, 0, x.dtype, shape);
  set_output(node, 1, DType::kInt64, std::move(shape));
  return Status::ok();
}

Status infer_cum_sum(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_RETURN_IF_ERROR(require_rank(node, 0, 1, kMaxRank));
  FW_RETURN_IF_ERROR(axis_in(node.int_or("axis", 0), x.shape.size()).status());
  if (x.dtype == DType::kBool) return invalid_argument("its operand is bool; expected numbers");
  set_output(node, 0, x.dtype, x.shape);
  return Status::ok();
}

}  // namespace

extern const Op kScatterElements{"ScatterElements", 3, 3, 1, 1, {"axis", "reduction"}, infer_scatter_elements};
extern const Op kScatterND{"ScatterND", 3, 3, 1, 1, {"reduction"}, infer_scatter_nd};
extern const Op kTopK{"TopK", 1, 1, 2, 2, {"k", "axis", "largest", "sorted"}, infer_top_k};
extern const Op kCumSum{"CumSum", 1, 1, 1, 1, {"axis", "exclusive", "reverse"}, infer_cum_sum};

}  // namespace flywheel::ops
