// SPDX-License-Identifier: Apache-2.0
// Reads DimExpr's text form by recursive descent: sums of products of numbers, symbols, parentheses and the functions
// floor(a / b), ceil(a / b), mod, min and max. Text comes from models and files, so its length and nesting are bounded.
#include <fmt/format.h>

#include <cctype>
#include <limits>

#include "tensor/dim_expr.h"

namespace flywheel {
namespace {

constexpr size_t kMaxText = 1 << 16;
constexpr int kMaxNesting = 100;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<DimExpr> run() {
    FW_ASSIGN_OR_RETURN(DimExpr e, sum(0));
    skip_space();
    if (pos_ != text_.size()) return error("an operator or the end");
    return e;
  }

 private:
  Status error(std::string_view expected) const {
    std::string found = pos_ < text_.size() ? fmt::format("'{}'", text_.substr(pos_, 12)) : "the end";
    return invalid_argument(fmt::format("dimension '{}', column {}: found {}, expected {}", text_.substr(0, 200),
                                        pos_ + 1, found, expected));
  }

  void skip_space() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) ++pos_;
  }

  bool take(char c) {
    skip_space();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }

  Result<DimExpr> sum(int nesting) {
    if (nesting > kMaxNesting) return error(fmt::format("at most {} nested parentheses", kMaxNesting));
    FW_ASSIGN_OR_RETURN(DimExpr total, product(take('-'), nesting));
    while (true) {
      bool minus = take('-');
      if (!minus && !take('+')) return total;
      FW_ASSIGN_OR_RETURN(DimExpr next, product(minus, nesting));
      total = total + next;
    }
  }

  Result<DimExpr> product(bool negative, int nesting) {
    skip_space();
    // The sign belongs to a leading number, so that the smallest integer has a text form.
    bool number = pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_])) != 0;
    FW_ASSIGN_OR_RETURN(DimExpr total, factor(number && negative, nesting));
    while (take('*')) {
      FW_ASSIGN_OR_RETURN(DimExpr next, factor(false, nesting));
      total = total * next;
    }
    return negative && !number ? DimExpr(-1) * total : total;
  }

  Result<DimExpr> factor(bool negative, int nesting) {
    skip_space();
    if (pos_ >= text_.size()) return error("a number, a symbol or '('");
    char c = text_[pos_];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number(negative);
    if (take('(')) {
      FW_ASSIGN_OR_RETURN(DimExpr e, sum(nesting + 1));
      if (!take(')')) return error("')'");
      return e;
    }
    if (c == '\'') return quoted();
    if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_') return error("a number, a symbol or '('");
    size_t start = pos_;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) != 0 || text_[pos_] == '_' || text_[pos_] == '.')) {
      ++pos_;
    }
    std::string_view name = text_.substr(start, pos_ - start);
    if (name == "floor" || name == "ceil" || name == "mod" || name == "min" || name == "max")
      return call(name, nesting);
    return DimExpr::symbol(name);
  }

  Result<DimExpr> number(bool negative) {
    constexpr uint64_t kLimit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    uint64_t value = 0;
    size_t start = pos_;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_])) != 0) {
      uint64_t digit = static_cast<uint64_t>(text_[pos_] - '0');
      if (value > (kLimit + 1 - digit) / 10) {
        pos_ = start;
        return error("a number that fits 64 bits");
      }
      value = value * 10 + digit;
      ++pos_;
    }
    if (value > kLimit && !negative) {
      pos_ = start;
      return error("a number that fits 64 bits");
    }
    return DimExpr(static_cast<int64_t>(negative ? -value : value));
  }

  Result<DimExpr> quoted() {
    std::string name;
    ++pos_;
    while (pos_ < text_.size() && text_[pos_] != '\'') {
      if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
      name += text_[pos_++];
    }
    if (pos_ >= text_.size()) return error("a closing quote");
    ++pos_;
    return DimExpr::symbol(name);
  }

  Result<DimExpr> call(std::string_view name, int nesting) {
    if (!take('(')) return error("'(' after a function's name");
    bool division = name == "floor" || name == "ceil";
    FW_ASSIGN_OR_RETURN(DimExpr a, sum(nesting + 1));
    if (!take(division ? '/' : ',')) return error(division ? "'/'" : "','");
    FW_ASSIGN_OR_RETURN(DimExpr b, sum(nesting + 1));
    if (!take(')')) return error("')'");
    if (name == "floor") return DimExpr::floor_div(a, b);
    if (name == "ceil") {
      if (b.constant().value_or(0) > 0) return DimExpr::floor_div(a + b - 1, b);
      return DimExpr(0) - DimExpr::floor_div(DimExpr(0) - a, b);
    }
    if (name == "mod") return DimExpr::mod(a, b);
    return name == "min" ? DimExpr::min(a, b) : DimExpr::max(a, b);
  }

  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

Result<DimExpr> DimExpr::parse(std::string_view text) {
  if (text.size() > kMaxText)
    return invalid_argument(fmt::format("a dimension of {} characters; at most {}", text.size(), kMaxText));
  return Parser(text).run();
}

}  // namespace flywheel
