// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/infer.h"

#include <fmt/format.h>

#include <algorithm>

namespace flywheel::ops {

void set_output(ir::Node& node, size_t i, DType dtype, SymShape shape) {
  ir::Value* value = node.output(i);
  if (!value) return;
  value->dtype = dtype;
  value->shape = std::move(shape);
  value->elements.reset();
}

void set_elements(ir::Node& node, size_t i, Elements elements) {
  ir::Value* value = node.output(i);
  if (!value || value->rank() > 1) return;
  if (value->dtype != DType::kInt64 && value->dtype != DType::kInt32 && value->dtype != DType::kBool) return;
  if (elements.size() > static_cast<size_t>(ir::kMaxKnownElements)) return;
  if (value->rank() == 1 && value->shape[0] != DimExpr(static_cast<int64_t>(elements.size()))) return;
  if (value->rank() == 0 && elements.size() != 1) return;
  bool narrow = value->dtype == DType::kInt32;
  auto unfit = [&](const DimExpr& e) {
    std::optional<int64_t> c = e.constant();
    return e.is_undefined() || (narrow && c && *c != static_cast<int32_t>(*c));
  };
  if (std::any_of(elements.begin(), elements.end(), unfit)) return;
  value->elements = std::move(elements);
}

void set_elements_of(ir::Node& node, size_t i, const std::optional<Elements>& elements) {
  if (elements) set_elements(node, i, *elements);
}

bool surely_less(const DimExpr& a, const DimExpr& b) { return (b - a).lower_bound().value_or(0) > 0; }
bool surely_at_most(const DimExpr& a, const DimExpr& b) { return (b - a).lower_bound().value_or(-1) >= 0; }
bool surely_differ(const DimExpr& a, const DimExpr& b) { return surely_less(a, b) || surely_less(b, a); }

bool known_nonnegative(const ir::Node& node, const DimExpr& e) {
  if (e.lower_bound().value_or(-1) >= 0) return true;
  return !e.is_constant() && node.graph() && node.graph()->assumes(e, DimExpr::max(e, 0));
}

Status require_equal(const ir::Node& node, const DimExpr& a, const DimExpr& b, std::string_view what) {
  if (a == b) return Status::ok();
  if (surely_differ(a, b)) {
    return invalid_argument(
        fmt::format("{}: found {} and {}, which must be equal", what, a.to_string(), b.to_string()));
  }
  if (node.graph()) node.graph()->assume(a, b);
  return Status::ok();
}

Status require_rank(const ir::Node& node, size_t operand, int min, int max) {
  int rank = node.input(operand)->rank();
  if (rank >= min && rank <= max) return Status::ok();
  return invalid_argument(fmt::format(
      "operand {} has shape {}, so rank {}; expected {}", operand, sym_shape_to_string(node.input(operand)->shape),
      rank, min == max ? fmt::format("rank {}", min) : fmt::format("rank {} to {}", min, max)));
}

Status require_float(const ir::Node& node, size_t operand) {
  DType dtype = node.input(operand)->dtype;
  if (is_float(dtype)) return Status::ok();
  return invalid_argument(fmt::format("operand {} is {}; expected a floating-point type", operand, dtype_name(dtype)));
}

Status require_index(const ir::Node& node, size_t operand) {
  DType dtype = node.input(operand)->dtype;
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return Status::ok();
  return invalid_argument(fmt::format("operand {} is {}; expected i32 or i64", operand, dtype_name(dtype)));
}

Status require_same_dtype(const ir::Node& node, size_t first, size_t last) {
  const ir::Value* reference = nullptr;
  size_t at = 0;
  for (size_t i = first; i < std::min(last, node.inputs().size()); ++i) {
    const ir::Value* value = node.input(i);
    if (!value) continue;
    if (!reference) {
      reference = value;
      at = i;
    } else if (value->dtype != reference->dtype) {
      return invalid_argument(fmt::format("operand {} is {} and operand {} is {}; expected one type (add a Cast)", at,
                                          dtype_name(reference->dtype), i, dtype_name(value->dtype)));
    }
  }
  return Status::ok();
}

Result<size_t> axis_in(int64_t axis, size_t rank, std::string_view name) {
  int64_t n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) {
    return invalid_argument(fmt::format("attribute {} is {}; expected {} to {} for rank {}", name, axis, -n, n - 1, n));
  }
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

Result<std::vector<size_t>> axes_in(const std::vector<int64_t>& axes, size_t rank) {
  std::vector<size_t> result;
  for (int64_t axis : axes) {
    FW_ASSIGN_OR_RETURN(size_t at, axis_in(axis, rank, "axes"));
    result.push_back(at);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) {
    return invalid_argument("attribute axes names a dim twice");
  }
  return result;
}

Result<SymShape> broadcast(const ir::Node& node, const SymShape& a, const SymShape& b) {
  size_t rank = std::max(a.size(), b.size());
  SymShape out(rank, DimExpr(1));
  for (size_t i = 0; i < rank; ++i) {  // from the last dim
    DimExpr da = i < a.size() ? a[a.size() - 1 - i] : DimExpr(1), db = i < b.size() ? b[b.size() - 1 - i] : DimExpr(1);
    DimExpr& d = out[rank - 1 - i];
    if (da == db || db == DimExpr(1)) {
      d = da;
    } else if (da == DimExpr(1)) {
      d = db;
    } else {
      Status status = require_equal(node, da, db, "dims do not broadcast");
      if (!status.is_ok()) {
        return status.with_context(fmt::format("shapes {} and {}", sym_shape_to_string(a), sym_shape_to_string(b)));
      }
      d = db.is_constant() ? db : da;
    }
  }
  return out;
}

Result<SymShape> broadcast_operands(const ir::Node& node, size_t first) {
  SymShape shape;
  for (size_t i = first; i < node.inputs().size(); ++i) {
    if (!node.input(i)) continue;
    FW_ASSIGN_OR_RETURN(shape, broadcast(node, shape, node.input(i)->shape));
  }
  return shape;
}

Status require_broadcasts_to(const ir::Node& node, const SymShape& from, const SymShape& to, std::string_view what) {
  Status misfit = invalid_argument(fmt::format("{} has shape {}, which does not broadcast to {}", what,
                                               sym_shape_to_string(from), sym_shape_to_string(to)));
  if (from.size() > to.size()) return misfit;
  for (size_t i = 0; i < from.size(); ++i) {
    const DimExpr& d = from[from.size() - 1 - i];
    if (d == DimExpr(1)) continue;
    if (!require_equal(node, d, to[to.size() - 1 - i], what).is_ok()) return misfit;
  }
  return Status::ok();
}

std::optional<SymShape> dims_attribute(const ir::Node& node, std::string_view name) {
  if (const auto* dims = node.find<SymShape>(name)) return *dims;
  if (const auto* ints = node.find<std::vector<int64_t>>(name)) return SymShape(ints->begin(), ints->end());
  return std::nullopt;
}

Result<SymShape> require_dims(const ir::Node& node, std::string_view name) {
  std::optional<SymShape> dims = dims_attribute(node, name);
  if (!dims) return invalid_argument(fmt::format("attribute {} is missing", name));
  return *std::move(dims);
}

Result<std::vector<int64_t>> require_ints(const ir::Node& node, std::string_view name) {
  const auto* ints = node.find<std::vector<int64_t>>(name);
  if (!ints) return invalid_argument(fmt::format("attribute {} is missing", name));
  return *ints;
}

Result<DType> dtype_attribute(const ir::Node& node, std::string_view name, DType fallback) {
  int64_t number = node.int_or(name, static_cast<int64_t>(fallback));
  if (const auto* text = node.find<std::string>(name)) {
    for (number = 0; number < kDTypeCount && dtype_name(static_cast<DType>(number)) != *text;) ++number;
  }
  if (number < 0 || number >= kDTypeCount) return invalid_argument(fmt::format("attribute {} is no data type", name));
  return static_cast<DType>(number);
}

DimExpr product(const SymShape& shape, size_t begin, size_t end) {
  DimExpr result(1);
  for (size_t i = begin; i < std::min(end, shape.size()); ++i) result = result * shape[i];
  return result;
}

Status check_epilogue(const ir::Node& node, size_t main_operands) {
  const auto* program = node.find<kernels::Program>("program");
  size_t extra = node.inputs().size() > main_operands ? node.inputs().size() - main_operands : 0;
  if (!program) return Status::ok();
  if (Status status = program->validate(); !status.is_ok()) return status.with_context("attribute program");
  if (program->inputs != extra + 1) {
    return invalid_argument(fmt::format("its program takes {} inputs; expected {}: the accumulator and {} operands",
                                        program->inputs, extra + 1, extra));
  }
  for (size_t i = main_operands; i < node.inputs().size(); ++i) {
    if (!node.input(i)) return invalid_argument(fmt::format("epilogue operand {} is absent", i));
    FW_RETURN_IF_ERROR(
        require_broadcasts_to(node, node.input(i)->shape, node.output()->shape, fmt::format("epilogue operand {}", i)));
  }
  return Status::ok();
}

}  // namespace flywheel::ops
