// SPDX-License-Identifier: Apache-2.0
// Operators that read at computed places.
//   Gather{axis = 0}  GatherElements{axis = 0}  GatherND{batch_dims = 0}      operands: data, indices (i32 or i64)
#include <fmt/format.h>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

Status infer_gather(ir::Node& node) {
  const ir::Value &data = *node.input(0), &indices = *node.input(1);
  FW_RETURN_IF_ERROR(require_index(node, 1));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), data.shape.size()));
  std::optional<Elements> places = indices.known_elements(), from = data.known_elements();
  if (std::optional<int64_t> extent = data.shape[axis].constant(); extent && places) {
    for (const DimExpr& place : *places) {
      std::optional<int64_t> i = place.constant();
      if (i && (*i < -*extent || *i >= *extent)) {
        return invalid_argument(
            fmt::format("index {} is outside dim {} of {}", *i, axis, sym_shape_to_string(data.shape)));
      }
    }
  }
  SymShape shape(data.shape.begin(), data.shape.begin() + static_cast<ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + static_cast<ptrdiff_t>(axis) + 1, data.shape.end());
  set_output(node, 0, data.dtype, std::move(shape));
  if (!places || !from || data.rank() != 1) return Status::ok();
  Elements elements;
  for (const DimExpr& place : *places) {
    std::optional<int64_t> i = place.constant();
    if (!i) return Status::ok();
    elements.push_back((*from)[static_cast<size_t>(*i < 0 ? *i + static_cast<int64_t>(from->size()) : *i)]);
  }
  set_elements(node, 0, std::move(elements));
  return Status::ok();
}

Status infer_gather_elements(ir::Node& node) {
  const ir::Value &data = *node.input(0), &indices = *node.input(1);
  FW_RETURN_IF_ERROR(require_index(node, 1));
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), data.shape.size()));
  if (indices.shape.size() != data.shape.size()) {
    return invalid_argument(fmt::format("data has shape {} and indices {}; expected equal ranks",
                                        sym_shape_to_string(data.shape), sym_shape_to_string(indices.shape)));
  }
  for (size_t i = 0; i < data.shape.size(); ++i) {
    if (i != axis && surely_less(data.shape[i], indices.shape[i])) {
      return invalid_argument(fmt::format("dim {} of the indices is {}, more than the data's {}", i,
                                          indices.shape[i].to_string(), data.shape[i].to_string()));
    }
  }
  set_output(node, 0, data.dtype, indices.shape);
  return Status::ok();
}

Status infer_gather_nd(ir::Node& node) {
  const ir::Value &data = *node.input(0), &indices = *node.input(1);
  FW_RETURN_IF_ERROR(require_index(node, 1));
  FW_RETURN_IF_ERROR(require_rank(node, 0, 1, kMaxRank));
  FW_RETURN_IF_ERROR(require_rank(node, 1, 1, kMaxRank));
  int64_t batch = node.int_or("batch_dims", 0);
  std::optional<int64_t> depth = indices.shape.back().constant();
  if (batch < 0 || batch >= data.rank() || batch >= indices.rank()) {
    return invalid_argument(fmt::format("attribute batch_dims is {}; expected less than the ranks {} and {}", batch,
                                        data.rank(), indices.rank()));
  }
  if (!depth)
    return unsupported(
        fmt::format("the last dim of its indices is {}; it must be fixed", indices.shape.back().to_string()));
  if (*depth < 1 || *depth > data.rank() - batch) {
    return invalid_argument(
        fmt::format("the last dim of its indices is {}; expected 1 to {}", *depth, data.rank() - batch));
  }
  SymShape shape(indices.shape.begin(), indices.shape.end() - 1);
  for (size_t i = 0; i < static_cast<size_t>(batch); ++i) {
    FW_RETURN_IF_ERROR(require_equal(node, data.shape[i], indices.shape[i], fmt::format("batch dim {}", i)));
  }
  shape.insert(shape.end(), data.shape.begin() + batch + *depth, data.shape.end());
  set_output(node, 0, data.dtype, std::move(shape));
  return Status::ok();
}

}  // namespace

extern const Op kGather{"Gather", 2, 2, 1, 1, {"axis"}, infer_gather};
extern const Op kGatherElements{"GatherElements", 2, 2, 1, 1, {"axis"}, infer_gather_elements};
extern const Op kGatherND{"GatherND", 2, 2, 1, 1, {"batch_dims"}, infer_gather_nd};

}  // namespace flywheel::ops
