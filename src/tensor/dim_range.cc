// SPDX-License-Identifier: Apache-2.0
#include "tensor/dim_range.h"

#include <algorithm>
#include <vector>

#include "tensor/floor_div.h"

namespace flywheel {
namespace {

struct Range {
  int64_t low = 0, high = 0;
};

// Of the four combinations of both ends: what every operation here takes its extremes at.
template <class Operation>
std::optional<Range> over_ends(const Range& a, const Range& b, const Operation& operation) {
  std::optional<Range> out;
  for (const int64_t x : {a.low, a.high}) {
    for (const int64_t y : {b.low, b.high}) {
      int64_t value = 0;
      if (!operation(x, y, value)) return std::nullopt;
      out = out ? Range{std::min(out->low, value), std::max(out->high, value)} : Range{value, value};
    }
  }
  return out;
}

std::optional<Range> combine(DimExpr::Op op, const Range& a, const Range& b) {
  switch (op) {
    case DimExpr::Op::kAdd:
      return over_ends(a, b, [](int64_t x, int64_t y, int64_t& out) { return !__builtin_add_overflow(x, y, &out); });
    case DimExpr::Op::kMul:
      return over_ends(a, b, [](int64_t x, int64_t y, int64_t& out) { return !__builtin_mul_overflow(x, y, &out); });
    case DimExpr::Op::kFloorDiv:
      if (b.low <= 0) return std::nullopt;
      return over_ends(a, b, [](int64_t x, int64_t y, int64_t& out) {
        out = floor_div_int(x, y);
        return true;
      });
    case DimExpr::Op::kMod:
      if (b.low <= 0) return std::nullopt;
      if (a.low >= 0 && a.high < b.low) return a;
      return Range{0, b.high - 1};
    case DimExpr::Op::kMin: return Range{std::min(a.low, b.low), std::min(a.high, b.high)};
    case DimExpr::Op::kMax: return Range{std::max(a.low, b.low), std::max(a.high, b.high)};
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<int64_t> largest_value(const DimExpr& expr, const SymbolValues& min, const SymbolValues& max) {
  if (expr.is_undefined()) return std::nullopt;
  std::vector<Range> stack;
  bool is_known = true;
  expr.visit_postfix([&](DimExpr::Op op, int64_t value, std::string_view symbol) {
    if (!is_known) return;
    if (op == DimExpr::Op::kConst) {
      stack.push_back({value, value});
      return;
    }
    if (op == DimExpr::Op::kSymbol) {
      const auto low = min.find(symbol), high = max.find(symbol);
      is_known = low != min.end() && high != max.end();
      if (is_known) stack.push_back({low->second, high->second});
      return;
    }
    const Range b = stack.back();
    stack.pop_back();
    const std::optional<Range> both = combine(op, stack.back(), b);
    is_known = both.has_value();
    if (is_known) stack.back() = *both;
  });
  if (!is_known || stack.size() != 1) return std::nullopt;
  return stack.front().high;
}

}  // namespace flywheel
