// SPDX-License-Identifier: Apache-2.0
// ONNX's integer Div truncates toward zero and its Mod takes the divisor's sign; extents are never negative, which
// bounds of expressions show. A comparison counts as known only when it holds, or fails, for all values of the symbols.
#include "compiler/ops/elementwise_fold.h"

#include <algorithm>
#include <array>
#include <limits>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

using Known = std::optional<DimExpr>;

bool nonpositive(const DimExpr& e) { return e.upper_bound().value_or(1) <= 0; }

Known truth(bool yes, bool no) {
  if (yes) return DimExpr(1);
  if (no) return DimExpr(0);
  return std::nullopt;
}

// surely_less and surely_at_most, with what the graph assumes of extents.
bool less(const ir::Node& node, const DimExpr& a, const DimExpr& b) {
  return surely_less(a, b) || (a.constant().value_or(0) < 0 && known_nonnegative(node, b));
}
bool at_most(const ir::Node& node, const DimExpr& a, const DimExpr& b) {
  return surely_at_most(a, b) || (a.constant().value_or(1) <= 0 && known_nonnegative(node, b));
}

Known divide(const ir::Node& node, const DimExpr& a, const DimExpr& b) {
  if (b == DimExpr(0)) return std::nullopt;
  DimExpr q = DimExpr::floor_div(a, b);
  if (known_nonnegative(node, a) && known_nonnegative(node, b)) return q;
  if (!q.is_undefined() && q * b == a) return q;  // no remainder, so no rounding
  auto x = a.constant(), y = b.constant();
  if (x && y && !(*x == std::numeric_limits<int64_t>::min() && *y == -1)) return DimExpr(*x / *y);
  return std::nullopt;
}

Known power(const DimExpr& a, const DimExpr& b) {
  auto exponent = b.constant();
  if (!exponent || *exponent < 0 || *exponent > 64) return std::nullopt;
  DimExpr result(1);
  for (int64_t i = 0; i < *exponent; ++i) result = result * a;
  return result;
}

Known fold_one(const ir::Node& node, const std::array<Known, 3>& x) {
  const std::string& op = node.op();
  if (op == "Where") {
    auto condition = x[0] ? x[0]->constant() : std::nullopt;
    if (condition) return *condition != 0 ? x[1] : x[2];
    return x[1] && x[2] && *x[1] == *x[2] ? x[1] : std::nullopt;
  }
  if (!x[0]) return std::nullopt;
  const DimExpr& a = *x[0];
  if (op == "Neg") return DimExpr(0) - a;
  if (op == "Abs") return known_nonnegative(node, a) ? Known(a) : nonpositive(a) ? Known(DimExpr(0) - a) : std::nullopt;
  if (op == "Sign") {
    if (surely_less(0, a)) return DimExpr(1);
    return a == DimExpr(0) ? Known(a) : surely_less(a, 0) ? Known(DimExpr(-1)) : std::nullopt;
  }
  if (op == "Relu") return DimExpr::max(a, 0);
  if (op == "Clip") {
    DimExpr e = a;
    for (const char* bound : {"min", "max"}) {
      if (!node.attributes.contains(bound)) continue;
      double limit = node.float_or(bound, 0);
      if (!(limit > -0x1p62 && limit < 0x1p62)) continue;
      e = bound[1] == 'i' ? DimExpr::max(e, static_cast<int64_t>(limit)) : DimExpr::min(e, static_cast<int64_t>(limit));
    }
    return e;
  }
  if (op == "Not") return truth(a == DimExpr(0), a.is_constant() && a != DimExpr(0));
  if (op == "Cast") {
    DType from = node.input(0)->dtype, to = node.output()->dtype;
    if (to == DType::kBool) return truth(surely_differ(a, 0), a == DimExpr(0));
    if (to == DType::kInt64 || to == from || from == DType::kBool) return a;
    auto c = a.constant();
    // An extent fits 32 bits: more elements than that along one axis would not have fitted the model either.
    if (!c) return to == DType::kInt32 ? Known(a) : std::nullopt;
    int64_t low = to == DType::kInt32 ? std::numeric_limits<int32_t>::min() : 0, high = 127;
    if (to == DType::kInt32) high = std::numeric_limits<int32_t>::max();
    return *c >= low && *c <= high ? Known(a) : std::nullopt;
  }
  if (!x[1]) return std::nullopt;
  const DimExpr& b = *x[1];
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return divide(node, a, b);
  if (op == "Min") return DimExpr::min(a, b);
  if (op == "Max") return DimExpr::max(a, b);
  if (op == "Pow") return power(a, b);
  if (op == "Mod") {
    if (node.int_or("fmod", 0) == 0 || (known_nonnegative(node, a) && known_nonnegative(node, b)))
      return DimExpr::mod(a, b);
    return std::nullopt;
  }
  if (op == "Equal") return truth(a == b, less(node, a, b) || less(node, b, a));
  if (op == "Less") return truth(less(node, a, b), at_most(node, b, a));
  if (op == "LessOrEqual") return truth(at_most(node, a, b), less(node, b, a));
  if (op == "Greater") return truth(less(node, b, a), at_most(node, a, b));
  if (op == "GreaterOrEqual") return truth(at_most(node, b, a), less(node, a, b));
  auto p = a.constant(), q = b.constant();
  if (!p || !q) return std::nullopt;
  if (op == "And") return DimExpr(*p != 0 && *q != 0 ? 1 : 0);
  if (op == "Or") return DimExpr(*p != 0 || *q != 0 ? 1 : 0);
  if (op == "Xor") return DimExpr((*p != 0) != (*q != 0) ? 1 : 0);
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<DimExpr>> fold_elementwise(const ir::Node& node) {
  const ir::Value& out = *node.output();
  if (is_float(out.dtype) || out.rank() > 1 || node.inputs().size() > 3) return std::nullopt;
  auto extent = out.rank() == 0 ? std::optional<int64_t>(1) : out.shape[0].constant();
  if (!extent || *extent > ir::kMaxKnownElements) return std::nullopt;
  std::array<std::optional<Elements>, 3> operands;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const ir::Value* value = node.input(i);
    if (!value) return std::nullopt;
    operands[i] = value->known_elements();
    if (operands[i] && operands[i]->size() != 1 && static_cast<int64_t>(operands[i]->size()) != *extent)
      return std::nullopt;
    if (!operands[i] && node.op() != "Where") return std::nullopt;
  }
  Elements result;
  for (int64_t i = 0; i < *extent; ++i) {
    std::array<Known, 3> x;
    for (size_t k = 0; k < node.inputs().size(); ++k) {
      if (operands[k]) x[k] = (*operands[k])[operands[k]->size() == 1 ? 0 : static_cast<size_t>(i)];
    }
    Known element = fold_one(node, x);
    if (!element) return std::nullopt;
    result.push_back(*std::move(element));
  }
  return result;
}

}  // namespace flywheel::ops
