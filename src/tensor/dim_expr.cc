// SPDX-License-Identifier: Apache-2.0
// The canonical form's construction, order, bounds, sums and products.
#include <algorithm>
#include <utility>

#include "tensor/dim_expr_form.h"

namespace flywheel {

using namespace dim_expr_form;  // NOLINT(google-build-using-namespace): this room's own

namespace {

using Bound = std::optional<int64_t>;

Bound add_bounds(Bound a, Bound b) {
  int64_t r;
  if (!a || !b || __builtin_add_overflow(*a, *b, &r)) return std::nullopt;
  return r;
}

Bound mul_bounds(Bound a, Bound b) {
  if ((a && *a == 0) || (b && *b == 0)) return 0;
  int64_t r;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &r)) return std::nullopt;
  return r;
}

Interval mul_intervals(const Interval& x, const Interval& y) {
  if (x.lo && *x.lo >= 0 && y.lo && *y.lo >= 0) {
    Interval r{mul_bounds(x.lo, y.lo), mul_bounds(x.hi, y.hi)};
    if (!r.lo) r.lo = 0;  // the product overflowed: it is large, not unknown
    return r;
  }
  if (!x.lo || !x.hi || !y.lo || !y.hi) return {};
  Interval r;
  bool first = true;
  for (int64_t a : {*x.lo, *x.hi}) {
    for (int64_t b : {*y.lo, *y.hi}) {
      int64_t p;
      if (__builtin_mul_overflow(a, b, &p)) return {};
      r.lo = first ? p : std::min(*r.lo, p);
      r.hi = first ? p : std::max(*r.hi, p);
      first = false;
    }
  }
  return r;
}

}  // namespace

DimExpr::DimExpr(std::shared_ptr<const Form> form) : form_(std::move(form)) {}

DimExpr::DimExpr(int64_t constant) {
  auto form = std::make_shared<Form>();
  if (constant != 0) form->terms.push_back({constant, {}});
  form->size = 1;
  form->bounds = {constant, constant};
  form_ = std::move(form);
}

DimExpr DimExpr::symbol(std::string_view name) {
  auto atom = std::make_shared<Atom>();
  atom->name = name;
  return Form::make({{1, {std::move(atom)}}});
}

DimExpr DimExpr::Form::undefined_expr() {
  auto form = std::make_shared<Form>();
  form->undefined = true;
  form->size = 3;
  return DimExpr(std::move(form));
}

DimExpr DimExpr::Form::make(Terms terms) {
  auto form = std::make_shared<Form>();
  int64_t size = static_cast<int64_t>(terms.size()) + 1;
  int depth = 0;
  Interval total{0, 0};
  for (const Term& term : terms) {
    Interval product{1, 1};
    for (const AtomRef& atom : term.atoms) {
      size += 1;
      if (atom->kind != AtomKind::kSymbol) {
        size += of(atom->a).size + of(atom->b).size;
        depth = std::max({depth, of(atom->a).depth + 1, of(atom->b).depth + 1});
      }
      if (size > kMaxSize || depth > kMaxDepth) return undefined_expr();
      product = mul_intervals(product, bounds_of(*atom));
    }
    if (term.coefficient < 0) std::swap(product.lo, product.hi);
    Bound c = term.coefficient;
    total = {add_bounds(total.lo, mul_bounds(c, product.lo)), add_bounds(total.hi, mul_bounds(c, product.hi))};
  }
  if (size > kMaxSize) return undefined_expr();
  form->terms = std::move(terms);
  form->size = static_cast<int>(size);
  form->depth = depth;
  form->bounds = total;
  return DimExpr(std::move(form));
}

DimExpr DimExpr::Form::atom(AtomKind kind, DimExpr a, DimExpr b) {
  auto atom = std::make_shared<Atom>();
  atom->kind = kind;
  atom->a = std::move(a);
  atom->b = std::move(b);
  return make({{1, {std::move(atom)}}});
}

Interval DimExpr::Form::bounds_of(const Atom& atom) {
  if (atom.kind == AtomKind::kSymbol) return {0, std::nullopt};
  const Interval& a = of(atom.a).bounds;
  const Interval& b = of(atom.b).bounds;
  auto either = [](Bound x, Bound y, bool smaller) -> Bound {
    if (x && y) return smaller ? std::min(*x, *y) : std::max(*x, *y);
    return std::nullopt;
  };
  auto tighter = [](Bound x, Bound y, bool smaller) -> Bound {
    if (x && y) return smaller ? std::min(*x, *y) : std::max(*x, *y);
    return x ? x : y;
  };
  switch (atom.kind) {
    case AtomKind::kMin: return {either(a.lo, b.lo, true), tighter(a.hi, b.hi, true)};
    case AtomKind::kMax: return {tighter(a.lo, b.lo, false), either(a.hi, b.hi, false)};
    case AtomKind::kMod:
      if (b.lo && *b.lo >= 0) return {0, b.hi && *b.hi > 0 ? Bound(*b.hi - 1) : std::nullopt};
      return {};
    case AtomKind::kFloorDiv: {
      if (!b.lo || *b.lo < 0) return {};
      // The divisor is at least 1 wherever the quotient is defined.
      int64_t least = std::max<int64_t>(*b.lo, 1);
      Interval r;
      if (a.lo && *a.lo >= 0) r.lo = b.hi && *b.hi > 0 ? *a.lo / *b.hi : 0;
      if (a.lo && *a.lo < 0) r.lo = floor_div_int(*a.lo, least);
      if (a.hi && *a.hi >= 0) r.hi = *a.hi / least;
      if (a.hi && *a.hi < 0) r.hi = b.hi && *b.hi > 0 ? floor_div_int(*a.hi, *b.hi) : -1;
      return r;
    }
    default: return {};
  }
}

int DimExpr::Form::compare(const Atom& a, const Atom& b) {
  if (&a == &b) return 0;
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == AtomKind::kSymbol) return a.name.compare(b.name);
  if (int c = compare(a.a, b.a); c != 0) return c;
  return compare(a.b, b.b);
}

int DimExpr::Form::compare(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (int c = compare(*a[i], *b[i]); c != 0) return c;
  }
  return 0;
}

int DimExpr::Form::compare(const DimExpr& x, const DimExpr& y) {
  const Form &a = of(x), &b = of(y);
  if (&a == &b) return 0;
  if (a.undefined != b.undefined) return a.undefined ? 1 : -1;
  size_t n = std::min(a.terms.size(), b.terms.size());
  for (size_t i = 0; i < n; ++i) {
    if (int c = compare(a.terms[i].atoms, b.terms[i].atoms); c != 0) return c;
    if (a.terms[i].coefficient != b.terms[i].coefficient)
      return a.terms[i].coefficient < b.terms[i].coefficient ? -1 : 1;
  }
  if (a.terms.size() != b.terms.size()) return a.terms.size() < b.terms.size() ? -1 : 1;
  return 0;
}

bool DimExpr::operator==(const DimExpr& other) const { return Form::compare(*this, other) == 0; }
bool DimExpr::operator<(const DimExpr& other) const { return Form::compare(*this, other) < 0; }

bool DimExpr::is_constant() const { return constant().has_value(); }

std::optional<int64_t> DimExpr::constant() const {
  if (form_->undefined) return std::nullopt;
  if (form_->terms.empty()) return 0;
  if (form_->terms.size() == 1 && form_->terms[0].atoms.empty()) return form_->terms[0].coefficient;
  return std::nullopt;
}

bool DimExpr::is_undefined() const { return form_->undefined; }
std::optional<int64_t> DimExpr::lower_bound() const { return form_->bounds.lo; }
std::optional<int64_t> DimExpr::upper_bound() const { return form_->bounds.hi; }

bool DimExpr::is_symbol() const { return Form::single_atom(*this, AtomKind::kSymbol) != nullptr; }

std::string DimExpr::symbol_name() const {
  const Atom* atom = Form::single_atom(*this, AtomKind::kSymbol);
  return atom ? atom->name : std::string();
}

const Atom* DimExpr::Form::single_atom(const DimExpr& e, AtomKind kind) {
  const Form& f = of(e);
  if (f.undefined || f.terms.size() != 1 || f.terms[0].coefficient != 1 || f.terms[0].atoms.size() != 1) return nullptr;
  const Atom* atom = f.terms[0].atoms[0].get();
  return atom->kind == kind ? atom : nullptr;
}

// --- sums and products ---

DimExpr DimExpr::Form::sum(const DimExpr& x, const DimExpr& y, int64_t sign) {
  const Form &a = of(x), &b = of(y);
  if (a.undefined || b.undefined) return undefined_expr();
  if (b.terms.empty()) return x;
  if (a.terms.empty() && sign == 1) return y;
  Terms out;
  out.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int c = i == a.terms.size() ? 1 : j == b.terms.size() ? -1 : compare(a.terms[i].atoms, b.terms[j].atoms);
    if (c < 0) {
      out.push_back(a.terms[i++]);
      continue;
    }
    int64_t coefficient;
    if (__builtin_mul_overflow(b.terms[j].coefficient, sign, &coefficient)) return undefined_expr();
    if (c == 0 && __builtin_add_overflow(coefficient, a.terms[i++].coefficient, &coefficient)) return undefined_expr();
    if (coefficient != 0) out.push_back({coefficient, b.terms[j].atoms});
    ++j;
  }
  return make(std::move(out));
}

DimExpr operator+(const DimExpr& a, const DimExpr& b) { return DimExpr::Form::sum(a, b, 1); }
DimExpr operator-(const DimExpr& a, const DimExpr& b) { return DimExpr::Form::sum(a, b, -1); }

Monomial DimExpr::Form::product(const Monomial& a, const Monomial& b) {
  Monomial out;
  out.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out),
             [](const AtomRef& p, const AtomRef& q) { return compare(*p, *q) < 0; });
  return out;
}

std::optional<Monomial> DimExpr::Form::quotient(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t j = 0;
  for (const AtomRef& atom : a) {
    if (j < b.size() && compare(*atom, *b[j]) == 0) {
      ++j;
    } else {
      out.push_back(atom);
    }
  }
  if (j != b.size()) return std::nullopt;
  return out;
}

DimExpr DimExpr::Form::from_unsorted(Terms terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& p, const Term& q) { return compare(p.atoms, q.atoms) < 0; });
  Terms out;
  for (Term& term : terms) {
    if (!out.empty() && compare(out.back().atoms, term.atoms) == 0) {
      if (__builtin_add_overflow(out.back().coefficient, term.coefficient, &out.back().coefficient))
        return undefined_expr();
    } else {
      if (!out.empty() && out.back().coefficient == 0) out.pop_back();
      out.push_back(std::move(term));
    }
  }
  if (!out.empty() && out.back().coefficient == 0) out.pop_back();
  return make(std::move(out));
}

DimExpr operator*(const DimExpr& x, const DimExpr& y) {
  const DimExpr::Form &a = DimExpr::Form::of(x), &b = DimExpr::Form::of(y);
  if (a.undefined || b.undefined) return DimExpr::Form::undefined_expr();
  if (a.terms.size() * b.terms.size() > kMaxSize) return DimExpr::Form::undefined_expr();
  Terms out;
  out.reserve(a.terms.size() * b.terms.size());
  for (const Term& p : a.terms) {
    for (const Term& q : b.terms) {
      int64_t coefficient;
      if (__builtin_mul_overflow(p.coefficient, q.coefficient, &coefficient)) return DimExpr::Form::undefined_expr();
      if (p.atoms.size() + q.atoms.size() > kMaxSize) return DimExpr::Form::undefined_expr();
      out.push_back({coefficient, DimExpr::Form::product(p.atoms, q.atoms)});
    }
  }
  return DimExpr::Form::from_unsorted(std::move(out));
}

}  // namespace flywheel
