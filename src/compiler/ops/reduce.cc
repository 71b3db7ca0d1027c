// SPDX-License-Identifier: Apache-2.0
// Reductions.
//   ReduceSum, Mean, Max, Min, Prod, L1, L2, SumSquare, LogSum, LogSumExp {axes (absent or empty: all), keepdims = 1}
//   ArgMax, ArgMin {axis = 0, keepdims = 1, select_last_index = 0}: i64
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

std::optional<DimExpr> fold(std::string_view op, const Elements& elements) {
  DimExpr total(op == "ReduceProd" ? 1 : 0);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (op == "ReduceProd") {
      total = total * elements[i];
    } else if (op == "ReduceSum") {
      total = total + elements[i];
    } else if (op == "ReduceMax" || op == "ReduceMin") {
      total = i == 0              ? elements[i]
              : op == "ReduceMax" ? DimExpr::max(total, elements[i])
                                  : DimExpr::min(total, elements[i]);
    } else {
      return std::nullopt;
    }
  }
  return elements.empty() && op.starts_with("ReduceM") ? std::nullopt : std::optional(total);
}

Status infer_reduce(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(std::vector<size_t> axes, axes_in(node.ints_or("axes", {}), x.shape.size()));
  bool keep = node.int_or("keepdims", 1) != 0;
  SymShape shape;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    bool reduced = axes.empty() || std::binary_search(axes.begin(), axes.end(), i);
    if (!reduced) shape.push_back(x.shape[i]);
    if (reduced && keep) shape.push_back(DimExpr(1));
  }
  if (x.dtype == DType::kBool) return invalid_argument("its operand is bool; expected numbers");
  set_output(node, 0, x.dtype, std::move(shape));
  std::optional<Elements> elements = x.known_elements();
  if (!elements || x.rank() != 1) return Status::ok();
  if (std::optional<DimExpr> result = fold(node.op(), *elements)) set_elements(node, 0, {*result});
  return Status::ok();
}

Status infer_arg(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(size_t axis, axis_in(node.int_or("axis", 0), x.shape.size()));
  if (x.dtype == DType::kBool) return invalid_argument("its operand is bool; expected numbers");
  SymShape shape = x.shape;
  shape[axis] = 1;
  if (node.int_or("keepdims", 1) == 0) shape.erase(shape.begin() + static_cast<ptrdiff_t>(axis));
  set_output(node, 0, DType::kInt64, std::move(shape));
  return Status::ok();
}

Op reduction(std::string_view name) { return {name, 1, 1, 1, 1, {"axes", "keepdims"}, infer_reduce}; }

}  // namespace

extern const Op kReduceSum = reduction("ReduceSum");
extern const Op kReduceMean = reduction("ReduceMean");
extern const Op kReduceMax = reduction("ReduceMax");
extern const Op kReduceMin = reduction("ReduceMin");
extern const Op kReduceProd = reduction("ReduceProd");
extern const Op kReduceL1 = reduction("ReduceL1");
extern const Op kReduceL2 = reduction("ReduceL2");
extern const Op kReduceSumSquare = reduction("ReduceSumSquare");
extern const Op kReduceLogSum = reduction("ReduceLogSum");
extern const Op kReduceLogSumExp = reduction("ReduceLogSumExp");
extern const Op kArgMax{"ArgMax", 1, 1, 1, 1, {"axis", "keepdims", "select_last_index"}, infer_arg};
extern const Op kArgMin{"ArgMin", 1, 1, 1, 1, {"axis", "keepdims", "select_last_index"}, infer_arg};

}  // namespace flywheel::ops
