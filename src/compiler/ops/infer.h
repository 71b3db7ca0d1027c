// SPDX-License-Identifier: Apache-2.0
// The verbs in which inference functions are written. Only files of ops/ use them.
//
// Where two extents must agree and cannot be proved to, inference goes on as if they did and records the pair in
// Graph::assumptions. A constant wins over a symbol, the first symbol over the second. Extents that differ for every
// value of the symbols are an error. In broadcasting only the constant 1 stretches: a symbol is taken not to be 1 by
// chance.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ops/op.h"

namespace flywheel::ops {

using Elements = std::vector<DimExpr>;

// Types and shapes an output. Known elements are dropped unless they fit: integers or bool, rank <= 1, not too many,
// all defined.
void set_output(ir::Node& node, size_t i, DType dtype, SymShape shape);
void set_elements(ir::Node& node, size_t i, Elements elements);  // REQUIRES: set_output(i) before
void set_elements_of(ir::Node& node, size_t i, const std::optional<Elements>& elements);

// kInvalidArgument unless the extents may be equal; assumes it where that is open.
Status require_equal(const ir::Node& node, const DimExpr& a, const DimExpr& b, std::string_view what);
Status require_rank(const ir::Node& node, size_t operand, int min, int max);
Status require_float(const ir::Node& node, size_t operand);
Status require_index(const ir::Node& node, size_t operand);  // i32 or i64
// Operands [first, last) that are there have one type.
Status require_same_dtype(const ir::Node& node, size_t first = 0, size_t last = SIZE_MAX);
// Certain differences: by bounds, for all values of the symbols.
bool surely_differ(const DimExpr& a, const DimExpr& b);
bool surely_less(const DimExpr& a, const DimExpr& b);
bool surely_at_most(const DimExpr& a, const DimExpr& b);
// By its bounds, or because the graph assumes so: extents of tensors that Shape reads are.
bool known_nonnegative(const ir::Node& node, const DimExpr& e);

Result<size_t> axis_in(int64_t axis, size_t rank, std::string_view name = "axis");
// Sorted, distinct, in range.
Result<std::vector<size_t>> axes_in(const std::vector<int64_t>& axes, size_t rank);

Result<SymShape> broadcast(const ir::Node& node, const SymShape& a, const SymShape& b);
Result<SymShape> broadcast_operands(const ir::Node& node, size_t first = 0);
// `from` stretches to `to` without enlarging it.
Status require_broadcasts_to(const ir::Node& node, const SymShape& from, const SymShape& to, std::string_view what);

// A list of extents: SymShape or plain integers. nullopt: not there.
std::optional<SymShape> dims_attribute(const ir::Node& node, std::string_view name);
Result<SymShape> require_dims(const ir::Node& node, std::string_view name);
Result<std::vector<int64_t>> require_ints(const ir::Node& node, std::string_view name);
Result<DType> dtype_attribute(const ir::Node& node, std::string_view name, DType fallback);

DimExpr product(const SymShape& shape, size_t begin = 0, size_t end = SIZE_MAX);

// The operators' program attribute takes the accumulator and operands [main ..); each must broadcast to the output.
Status check_epilogue(const ir::Node& node, size_t main_operands);

}  // namespace flywheel::ops
