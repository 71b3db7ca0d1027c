// SPDX-License-Identifier: Apache-2.0
// The canonical form behind DimExpr: a sum of terms, each an integer coefficient times a sorted multiset of atoms; an
// atom is a symbol or a floor division, remainder, minimum or maximum of two expressions. Terms are in graded
// lexicographic order with the constant last. Arithmetic that overflows, divides by zero or grows past the limits gives
// the one undefined expression, which absorbs everything and fails to evaluate: expressions come from hostile models,
// so size is bounded. Only dim_expr*.cc use it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensor/dim_expr.h"
#include "tensor/floor_div.h"

namespace flywheel {
namespace dim_expr_form {

inline constexpr int kMaxSize = 1024;  // atoms and terms, nested ones included
inline constexpr int kMaxDepth = 32;   // nesting of floor, mod, min, max

enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMod, kMin, kMax };

struct Atom {
  AtomKind kind = AtomKind::kSymbol;
  std::string name;  // of a symbol
  DimExpr a, b;      // of the others
};
using AtomRef = std::shared_ptr<const Atom>;
using Monomial = std::vector<AtomRef>;  // sorted; a power is a repetition

struct Term {
  int64_t coefficient = 0;
  Monomial atoms;
};
using Terms = std::vector<Term>;

struct Interval {
  std::optional<int64_t> lo, hi;  // nullopt: open
};

}  // namespace dim_expr_form

struct DimExpr::Form {
  using AtomKind = dim_expr_form::AtomKind;
  using Atom = dim_expr_form::Atom;
  using Monomial = dim_expr_form::Monomial;
  using Terms = dim_expr_form::Terms;

  Terms terms;  // empty: 0
  bool undefined = false;
  int size = 0, depth = 0;
  dim_expr_form::Interval bounds;

  static const Form& of(const DimExpr& e) { return *e.form_; }
  static DimExpr make(Terms terms);  // REQUIRES: canonical terms
  static DimExpr undefined_expr();
  static DimExpr atom(AtomKind kind, DimExpr a, DimExpr b);

  static int compare(const DimExpr& a, const DimExpr& b);
  static int compare(const Atom& a, const Atom& b);
  static int compare(const Monomial& a, const Monomial& b);  // the order of terms
  static dim_expr_form::Interval bounds_of(const Atom& atom);

  static DimExpr sum(const DimExpr& a, const DimExpr& b, int64_t sign);
  static DimExpr from_unsorted(Terms terms);
  static Monomial product(const Monomial& a, const Monomial& b);
  static std::optional<Monomial> quotient(const Monomial& a, const Monomial& b);
  static std::optional<DimExpr> exact_quotient(const DimExpr& a, const DimExpr& b);
  static void cancel_common_factors(DimExpr& a, DimExpr& b);
  static const Atom* single_atom(const DimExpr& e, AtomKind kind);
  static DimExpr min_or_max(AtomKind kind, const DimExpr& a, const DimExpr& b);
};

}  // namespace flywheel
