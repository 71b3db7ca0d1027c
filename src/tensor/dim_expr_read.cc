// SPDX-License-Identifier: Apache-2.0
// Reading expressions: values, substitution, symbols, postfix and text.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "tensor/dim_expr_form.h"

namespace flywheel {

using namespace dim_expr_form;  // NOLINT(google-build-using-namespace): this room's own

namespace {

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
