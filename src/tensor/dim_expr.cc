// SPDX-License-Identifier: Apache-2.0
// The canonical form behind DimExpr: a sum of terms, each an integer coefficient times a sorted multiset of atoms; an
// atom is a symbol or a floor division, remainder, minimum or maximum of two expressions. Terms are in graded
// lexicographic order with the constant last. Arithmetic that overflows, divides by zero or grows past the limits below
// gives the one undefined expression, which absorbs everything and fails to evaluate: expressions come from hostile
// models, so size is bounded here.
#include "tensor/dim_expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace flywheel {
namespace {

constexpr int kMaxSize = 1024;  // atoms and terms, nested ones included
constexpr int kMaxDepth = 32;   // nesting of floor, mod, min, max

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

int64_t floor_div_int(int64_t a, int64_t b) {  // REQUIRES: b != 0 and not (INT64_MIN, -1)
  int64_t q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t mod_int(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

// A bound that nullopt leaves open.
using Bound = std::optional<int64_t>;
struct Interval {
  Bound lo, hi;
};

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

bool is_plain_name(std::string_view name) {
  if (name.empty() || name == "floor" || name == "ceil" || name == "min" || name == "max" || name == "mod")
    return false;
  for (size_t i = 0; i < name.size(); ++i) {
    char c = name[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '.'))) return false;
  }
  return true;
}

void append_symbol(std::string& out, std::string_view name) {
  if (is_plain_name(name)) {
    out += name;
    return;
  }
  out += '\'';
  for (char c : name) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  out += '\'';
}

}  // namespace

struct DimExpr::Form {
  Terms terms;  // empty: 0
  bool undefined = false;
  int size = 0, depth = 0;
  Interval bounds;

  static const Form& of(const DimExpr& e) { return *e.form_; }
  static DimExpr make(Terms terms);  // REQUIRES: canonical terms
  static DimExpr undefined_expr();
  static DimExpr atom(AtomKind kind, DimExpr a, DimExpr b);

  static int compare(const DimExpr& a, const DimExpr& b);
  static int compare(const Atom& a, const Atom& b);
  static int compare(const Monomial& a, const Monomial& b);  // the order of terms
  static Interval bounds_of(const Atom& atom);

  static DimExpr sum(const DimExpr& a, const DimExpr& b, int64_t sign);
  static DimExpr from_unsorted(Terms terms);
  static Monomial product(const Monomial& a, const Monomial& b);
  static std::optional<Monomial> quotient(const Monomial& a, const Monomial& b);
  static std::optional<DimExpr> exact_quotient(const DimExpr& a, const DimExpr& b);
  static void cancel_common_factors(DimExpr& a, DimExpr& b);
  static const Atom* single_atom(const DimExpr& e, AtomKind kind);
  static DimExpr min_or_max(AtomKind kind, const DimExpr& a, const DimExpr& b);
};

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

// --- sums and products
// ---------------------------------------------------------------------------------------------------

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

// --- division
// ------------------------------------------------------------------------------------------------------------

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

// --- minimum and maximum
// -------------------------------------------------------------------------------------------------

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

// --- evaluation and substitution
// -----------------------------------------------------------------------------------------

Result<int64_t> DimExpr::evaluate(const std::map<std::string, int64_t, std::less<>>& symbols) const {
  auto overflow = [&] { return invalid_argument(fmt::format("the value of '{}' does not fit 64 bits", to_string())); };
  if (form_->undefined) {
    return invalid_argument(
        "a dimension is undefined: its expression overflows 64 bits, divides by zero or is too large");
  }
  int64_t total = 0;
  for (const Term& term : form_->terms) {
    int64_t product = term.coefficient;
    for (const AtomRef& atom : term.atoms) {
      int64_t value = 0;
      if (atom->kind == AtomKind::kSymbol) {
        auto it = symbols.find(atom->name);
        if (it == symbols.end()) {
          return invalid_argument(
              fmt::format("dimension '{}' has no value; give one to evaluate '{}'", atom->name, to_string()));
        }
        value = it->second;
      } else {
        FW_ASSIGN_OR_RETURN(int64_t a, atom->a.evaluate(symbols));
        FW_ASSIGN_OR_RETURN(int64_t b, atom->b.evaluate(symbols));
        if (atom->kind == AtomKind::kMin) {
          value = std::min(a, b);
        } else if (atom->kind == AtomKind::kMax) {
          value = std::max(a, b);
        } else if (b == 0) {
          return invalid_argument(fmt::format("'{}' divides by zero: '{}' is 0", to_string(), atom->b.to_string()));
        } else if (atom->kind == AtomKind::kMod) {
          value = mod_int(a, b);
        } else {
          if (b == -1 && a == std::numeric_limits<int64_t>::min()) return overflow();
          value = floor_div_int(a, b);
        }
      }
      if (__builtin_mul_overflow(product, value, &product)) return overflow();
    }
    if (__builtin_add_overflow(total, product, &total)) return overflow();
  }
  return total;
}

DimExpr DimExpr::substitute(const std::map<std::string, DimExpr, std::less<>>& values) const {
  if (form_->undefined || values.empty() || is_constant()) return *this;
  DimExpr total(0);
  for (const Term& term : form_->terms) {
    DimExpr product(term.coefficient);
    for (const AtomRef& atom : term.atoms) {
      if (atom->kind == AtomKind::kSymbol) {
        auto it = values.find(atom->name);
        product = product * (it == values.end() ? Form::make({{1, {atom}}}) : it->second);
        continue;
      }
      DimExpr a = atom->a.substitute(values), b = atom->b.substitute(values);
      switch (atom->kind) {
        case AtomKind::kFloorDiv: product = product * floor_div(a, b); break;
        case AtomKind::kMod: product = product * mod(a, b); break;
        case AtomKind::kMin: product = product * min(a, b); break;
        default: product = product * max(a, b); break;
      }
    }
    total = total + product;
  }
  return total;
}

std::vector<std::string> DimExpr::symbols() const {
  std::set<std::string> names;
  std::vector<const Form*> pending{form_.get()};
  while (!pending.empty()) {
    const Form* form = pending.back();
    pending.pop_back();
    for (const Term& term : form->terms) {
      for (const AtomRef& atom : term.atoms) {
        if (atom->kind == AtomKind::kSymbol) {
          names.insert(atom->name);
        } else {
          pending.push_back(atom->a.form_.get());
          pending.push_back(atom->b.form_.get());
        }
      }
    }
  }
  return {names.begin(), names.end()};
}

void DimExpr::visit_postfix(const std::function<void(Op op, int64_t value, std::string_view symbol)>& visitor) const {
  if (form_->undefined) {
    visitor(Op::kConst, 1, {});
    visitor(Op::kConst, 0, {});
    visitor(Op::kFloorDiv, 0, {});
    return;
  }
  if (form_->terms.empty()) visitor(Op::kConst, 0, {});
  bool first_term = true;
  for (const Term& term : form_->terms) {
    bool first_factor = true;
    auto factor_done = [&] {
      if (!first_factor) visitor(Op::kMul, 0, {});
      first_factor = false;
    };
    if (term.coefficient != 1 || term.atoms.empty()) {
      visitor(Op::kConst, term.coefficient, {});
      factor_done();
    }
    for (const AtomRef& atom : term.atoms) {
      if (atom->kind == AtomKind::kSymbol) {
        visitor(Op::kSymbol, 0, atom->name);
      } else {
        atom->a.visit_postfix(visitor);
        atom->b.visit_postfix(visitor);
        Op op = Op::kMax;
        if (atom->kind == AtomKind::kFloorDiv) op = Op::kFloorDiv;
        if (atom->kind == AtomKind::kMod) op = Op::kMod;
        if (atom->kind == AtomKind::kMin) op = Op::kMin;
        visitor(op, 0, {});
      }
      factor_done();
    }
    if (!first_term) visitor(Op::kAdd, 0, {});
    first_term = false;
  }
}

std::string DimExpr::to_string() const {
  if (form_->undefined) return "floor(1 / 0)";
  if (form_->terms.empty()) return "0";
  std::string out;
  for (const Term& term : form_->terms) {
    bool negative = term.coefficient < 0;
    uint64_t magnitude = negative ? -static_cast<uint64_t>(term.coefficient) : static_cast<uint64_t>(term.coefficient);
    if (!out.empty()) {
      out += negative ? " - " : " + ";
    } else if (negative) {
      out += '-';
    }
    bool first = true;
    if (magnitude != 1 || term.atoms.empty()) {
      out += std::to_string(magnitude);
      first = false;
    }
    for (const AtomRef& atom : term.atoms) {
      if (!first) out += '*';
      first = false;
      switch (atom->kind) {
        case AtomKind::kSymbol: append_symbol(out, atom->name); break;
        case AtomKind::kFloorDiv: {
          // A sum below or above the stroke needs parentheses: "floor((a + 1) / 2)".
          auto operand = [&](const DimExpr& e) {
            bool sum = e.form_->terms.size() > 1;
            out += sum ? "(" + e.to_string() + ")" : e.to_string();
          };
          out += "floor(";
          operand(atom->a);
          out += " / ";
          operand(atom->b);
          out += ')';
          break;
        }
        default:
          out += atom->kind == AtomKind::kMod ? "mod(" : atom->kind == AtomKind::kMin ? "min(" : "max(";
          out += atom->a.to_string() + ", " + atom->b.to_string() + ")";
      }
    }
  }
  return out;
}

std::string sym_shape_to_string(const SymShape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += shape[i].to_string();
  }
  return out + "]";
}

}  // namespace flywheel
