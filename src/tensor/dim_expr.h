// SPDX-License-Identifier: Apache-2.0
// Symbolic extents: integer expressions over named symbols such as `batch`. Kept in a canonical form (a sum of products
// of atoms), so that equal expressions compare equal: batch*seq*768 / (batch*12*64) simplifies, and shape arithmetic in
// a model (Shape, Gather, Concat, Reshape) folds at build time. Immutable values; cheap to copy; any thread.
// Symbols are extents, so never negative: simplification relies on it (max(n + 1, 0) is n + 1).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"

namespace flywheel {

class DimExpr {
 public:
  DimExpr(int64_t constant = 0);  // NOLINT(google-explicit-constructor): dims are mostly plain numbers
  static DimExpr symbol(std::string_view name);

  bool is_constant() const;
  std::optional<int64_t> constant() const;
  bool is_symbol() const;           // exactly one symbol, nothing else
  std::string symbol_name() const;  // REQUIRES: is_symbol()
  // Arithmetic overflowed, a constant 0 divides, or the expression outgrew its bound: prints as "floor(1 / 0)", absorbs
  // whatever it is combined with, and evaluate() fails.
  bool is_undefined() const;
  // Bounds that hold for all nonnegative values of the symbols; nullopt when none is known.
  std::optional<int64_t> lower_bound() const;
  std::optional<int64_t> upper_bound() const;

  friend DimExpr operator+(const DimExpr& a, const DimExpr& b);
  friend DimExpr operator-(const DimExpr& a, const DimExpr& b);
  friend DimExpr operator*(const DimExpr& a, const DimExpr& b);
  // Floor division and its remainder (sign of the divisor); exact where the canonical form shows it, which takes
  // divisors to be nonzero: n/n is 1. Dividing by the constant 0 gives an expression whose evaluation fails.
  static DimExpr floor_div(const DimExpr& a, const DimExpr& b);
  static DimExpr mod(const DimExpr& a, const DimExpr& b);
  static DimExpr min(const DimExpr& a, const DimExpr& b);
  static DimExpr max(const DimExpr& a, const DimExpr& b);

  bool operator==(const DimExpr& other) const;
  bool operator!=(const DimExpr& other) const { return !(*this == other); }
  // An arbitrary but fixed total order (the same on every run), for deterministic containers.
  bool operator<(const DimExpr& other) const;

  // The value for given symbol values; kInvalidArgument for an unknown symbol, overflow or division by zero.
  Result<int64_t> evaluate(const std::map<std::string, int64_t, std::less<>>& symbols) const;
  // Replaces symbols by expressions; symbols not in the map stay.
  DimExpr substitute(const std::map<std::string, DimExpr, std::less<>>& values) const;
  std::vector<std::string> symbols() const;  // sorted, unique

  // Text form, e.g. "batch*seq + 1", "floor((batch + 1) / 2)", "min(a, 3)", "mod(a, 4)"; parse() reads it back to an
  // equal expression. A symbol that is no identifier is quoted: 'batch size'.
  std::string to_string() const;
  static Result<DimExpr> parse(std::string_view text);

  // Visits as postfix operations, for serialisation (engine/plan.h ExprCode): kConst pushes value, kSymbol pushes name,
  // the others pop two operands and push one.
  enum class Op : uint8_t { kConst = 0, kSymbol = 1, kAdd = 2, kMul = 3, kFloorDiv = 4, kMod = 5, kMin = 6, kMax = 7 };
  void visit_postfix(const std::function<void(Op op, int64_t value, std::string_view symbol)>& visitor) const;

 private:
  struct Form;  // canonical form, shared and immutable
  explicit DimExpr(std::shared_ptr<const Form> form);
  std::shared_ptr<const Form> form_;
};

using SymShape = std::vector<DimExpr>;
std::string sym_shape_to_string(const SymShape& shape);  // "[batch, 3, 224, 224]"

}  // namespace flywheel
