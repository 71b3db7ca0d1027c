// SPDX-License-Identifier: Apache-2.0
// What does not distribute over sums: division, remainder, minimum and maximum, simplified as far as the forms show.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tensor/dim_expr_form.h"

namespace flywheel {

using namespace dim_expr_form;  // NOLINT(google-build-using-namespace): this room's own

// Polynomial division by leading terms; nullopt when it leaves a remainder.
std::optional<DimExpr> DimExpr::Form::exact_quotient(const DimExpr& a, const DimExpr& b) {
  const Form& divisor = of(b);
  DimExpr rest = a, result(0);
  for (int steps = 0; steps < kMaxSize; ++steps) {
    if (of(rest).undefined || of(result).undefined) return std::nullopt;
    if (of(rest).terms.empty()) return result;
    const Term& lead = of(rest).terms[0];
    const Term& by = divisor.terms[0];
    if (by.coefficient == -1 ? lead.coefficient == std::numeric_limits<int64_t>::min()
                             : lead.coefficient % by.coefficient != 0) {
      return std::nullopt;
    }
    std::optional<Monomial> atoms = quotient(lead.atoms, by.atoms);
    if (!atoms) return std::nullopt;
    DimExpr q = make({{lead.coefficient / by.coefficient, std::move(*atoms)}});
    result = result + q;
    rest = rest - q * b;
  }
  return std::nullopt;
}

// Divides both by their common integer and common atoms and makes b's leading coefficient positive: the ratio is the
// same.
void DimExpr::Form::cancel_common_factors(DimExpr& a, DimExpr& b) {
  uint64_t gcd = 0;
  Monomial common = of(b).terms[0].atoms;
  for (const DimExpr* e : {&a, &b}) {
    for (const Term& term : of(*e).terms) {
      uint64_t magnitude =
          term.coefficient < 0 ? -static_cast<uint64_t>(term.coefficient) : static_cast<uint64_t>(term.coefficient);
      gcd = std::gcd(gcd, magnitude);
      Monomial both;
      std::set_intersection(common.begin(), common.end(), term.atoms.begin(), term.atoms.end(),
                            std::back_inserter(both),
                            [](const AtomRef& p, const AtomRef& q) { return compare(*p, *q) < 0; });
      common = std::move(both);
    }
  }
  if (gcd > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return;
  int64_t factor = static_cast<int64_t>(gcd);
  if (of(b).terms[0].coefficient < 0) factor = -factor;
  if (factor == 1 && common.empty()) return;
  auto divide = [&](const DimExpr& e) {
    Terms terms;
    for (const Term& term : of(e).terms) {
      if (factor == -1 && term.coefficient == std::numeric_limits<int64_t>::min()) return undefined_expr();
      terms.push_back({term.coefficient / factor, *quotient(term.atoms, common)});
    }
    return make(std::move(terms));  // dividing by a monomial keeps the order
  };
  a = divide(a);
  b = divide(b);
}

DimExpr DimExpr::floor_div(const DimExpr& dividend, const DimExpr& divisor) {
  if (dividend.form_->undefined || divisor.form_->undefined || divisor.form_->terms.empty())
    return Form::undefined_expr();
  if (dividend.form_->terms.empty()) return 0;
  if (std::optional<DimExpr> exact = Form::exact_quotient(dividend, divisor)) return *exact;
  DimExpr a = dividend, b = divisor;
  Form::cancel_common_factors(a, b);
  if (a.form_->undefined || b.form_->undefined) return Form::undefined_expr();

  // floor((b*q + r) / b) = q + floor(r / b): take out what the (single-term) divisor divides.
  DimExpr whole(0);
  if (b.form_->terms.size() == 1) {
    const Term& by = b.form_->terms[0];
    Terms taken, left;
    for (const Term& term : a.form_->terms) {
      std::optional<Monomial> atoms = Form::quotient(term.atoms, by.atoms);
      int64_t q = atoms ? floor_div_int(term.coefficient, by.coefficient) : 0;
      if (q != 0) taken.push_back({q, std::move(*atoms)});
      int64_t r = q != 0 ? mod_int(term.coefficient, by.coefficient) : term.coefficient;
      if (r != 0) left.push_back({r, term.atoms});
    }
    if (!taken.empty()) {
      whole = Form::make(std::move(taken));
      a = Form::make(std::move(left));
    }
    if (a.form_->undefined || a.form_->terms.empty()) return whole + a;
  }
  std::optional<int64_t> c = b.constant();
  if (c == 1) return whole + a;
  if (c && *c > 0) {
    // floor((floor(x / d) + r) / c) = floor((x + d*r) / (c*d)) for positive c and d, so that chained strides merge.
    for (size_t i = 0; i < a.form_->terms.size(); ++i) {
      const Term& term = a.form_->terms[i];
      if (term.coefficient != 1 || term.atoms.size() != 1 || term.atoms[0]->kind != AtomKind::kFloorDiv) continue;
      AtomRef inner = term.atoms[0];
      std::optional<int64_t> d = inner->b.constant();
      int64_t both;
      if (!d || *d <= 0 || __builtin_mul_overflow(*d, *c, &both)) continue;
      Terms rest = a.form_->terms;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      DimExpr merged = floor_div(inner->a + DimExpr(*d) * Form::make(std::move(rest)), both);
      if (!merged.form_->undefined) return whole + merged;
      break;
    }
  }
  const Interval &na = a.form_->bounds, &nb = b.form_->bounds;
  // 0 <= a < b everywhere.
  if (na.lo && *na.lo >= 0 && na.hi && nb.lo && *na.hi < *nb.lo) return whole;
  return whole + Form::atom(AtomKind::kFloorDiv, a, b);
}

DimExpr DimExpr::mod(const DimExpr& a, const DimExpr& b) {
  if (a.form_->undefined || b.form_->undefined || b.form_->terms.empty()) return Form::undefined_expr();
  if (a.form_->terms.empty() || Form::exact_quotient(a, b)) return 0;
  std::optional<int64_t> c = b.constant();
  DimExpr rest = a;
  if (c) {
    if (*c == 1 || *c == -1) return 0;
    Terms left;
    for (const Term& term : a.form_->terms) {
      int64_t r = mod_int(term.coefficient, *c);
      if (r != 0) left.push_back({r, term.atoms});
    }
    rest = Form::make(std::move(left));
    if (rest.form_->undefined || rest.is_constant()) return rest;
  }
  const Interval &na = rest.form_->bounds, &nb = b.form_->bounds;
  if (na.lo && *na.lo >= 0 && na.hi && nb.lo && *na.hi < *nb.lo) return rest;
  return Form::atom(AtomKind::kMod, rest, b);
}

DimExpr DimExpr::Form::min_or_max(AtomKind kind, const DimExpr& a, const DimExpr& b) {
  if (of(a).undefined || of(b).undefined) return undefined_expr();
  std::vector<DimExpr> pending{a, b}, operands;
  while (!pending.empty()) {  // flatten
    DimExpr e = std::move(pending.back());
    pending.pop_back();
    if (const Atom* atom = single_atom(e, kind)) {
      pending.push_back(atom->a);
      pending.push_back(atom->b);
    } else {
      operands.push_back(std::move(e));
    }
  }
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  // Drop operands that another one beats wherever both are defined. No sum fits above the largest integer.
  auto beats = [&](const DimExpr& p, const DimExpr& q) {
    std::optional<int64_t> cq = q.constant();
    if (cq && kind == AtomKind::kMin && *cq == std::numeric_limits<int64_t>::max()) return true;
    if (cq && kind == AtomKind::kMax && *cq == std::numeric_limits<int64_t>::min()) return true;
    DimExpr gap = kind == AtomKind::kMin ? q - p : p - q;
    return !of(gap).undefined && of(gap).bounds.lo && *of(gap).bounds.lo >= 0;
  };
  for (size_t i = 0; i < operands.size();) {
    bool beaten = false;
    for (size_t j = 0; j < operands.size() && !beaten; ++j) beaten = j != i && beats(operands[j], operands[i]);
    if (beaten) {
      operands.erase(operands.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  DimExpr result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    if (of(result).undefined) return result;
    result = atom(kind, result, operands[i]);
  }
  return result;
}

DimExpr DimExpr::min(const DimExpr& a, const DimExpr& b) { return Form::min_or_max(AtomKind::kMin, a, b); }
DimExpr DimExpr::max(const DimExpr& a, const DimExpr& b) { return Form::min_or_max(AtomKind::kMax, a, b); }

}  // namespace flywheel
