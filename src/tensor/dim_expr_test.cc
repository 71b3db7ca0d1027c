// SPDX-License-Identifier: Apache-2.0
#include "tensor/dim_expr.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace flywheel {
namespace {

using Env = std::map<std::string, int64_t, std::less<>>;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

DimExpr parse(std::string_view text) {
  Result<DimExpr> e = DimExpr::parse(text);
  EXPECT_TRUE(e.is_ok()) << text << ": " << e.status().to_string();
  return e.is_ok() ? *e : DimExpr(-12345);
}

TEST(DimExpr, EqualExpressionsCompareEqual) {
  struct Case {
    const char *a, *b;
  } cases[] = {
      {"a + b", "b + a"},
      {"(a + 1)*(a - 1)", "a*a - 1"},
      {"2*a - a - a", "0"},
      {"floor(batch*seq*768 / (batch*12*64))", "seq"},
      {"floor((a*b + a) / a)", "b + 1"},
      {"floor((a*a - b*b) / (a + b))", "a - b"},
      {"floor((4*n + m + 5) / 4)", "n + 1 + floor((m + 1) / 4)"},
      {"floor(6*a / 4)", "a + floor(a / 2)"},
      {"floor(a*b / (2*b))", "floor(a / 2)"},
      {"floor(a / -2)", "floor(-a / 2)"},
      {"floor((floor((h - 1) / 2) + 1 - 1) / 2) + 1", "floor((h + 3) / 4)"},
      {"mod(6*a + 7, 3)", "1"},
      {"mod(a*b, b)", "0"},
      {"mod(mod(a, 4), 8)", "mod(a, 4)"},
      {"min(a, min(b, a))", "min(b, a)"},
      {"max(n + 1, 0)", "n + 1"},
      {"max(max(n - 1, 2), 1)", "max(2, n - 1)"},
      {"min(n + 3, n)", "n"},
      {"min(n, 9223372036854775807)", "n"},
      {"floor(mod(a, 3) / 3)", "0"},
      {"ceil(a / 2)", "floor((a + 1) / 2)"},
      {"'a'", "a"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse(c.a), parse(c.b)) << c.a << " gave " << parse(c.a).to_string() << ", " << c.b << " gave "
                                      << parse(c.b).to_string();
  }
}

TEST(DimExpr, DifferentExpressionsDiffer) {
  EXPECT_NE(parse("a"), parse("b"));
  EXPECT_NE(parse("floor(a / 2)"), parse("floor(a / 3)"));
  EXPECT_NE(parse("max(n - 1, 0)"), parse("n - 1"));
  EXPECT_NE(parse("floor(a / 2)*2"), parse("a"));
}

TEST(DimExpr, Prints) {
  EXPECT_EQ((DimExpr::symbol("batch") * DimExpr::symbol("seq") + 1).to_string(), "batch*seq + 1");
  EXPECT_EQ((DimExpr(1) - DimExpr::symbol("n")).to_string(), "-n + 1");
  EXPECT_EQ(DimExpr::floor_div(DimExpr::symbol("n") + 1, 2).to_string(), "floor((n + 1) / 2)");
  EXPECT_EQ(DimExpr::symbol("batch size").to_string(), "'batch size'");
  EXPECT_EQ(DimExpr::symbol("min").to_string(), "'min'");
  EXPECT_EQ(DimExpr(kMin).to_string(), "-9223372036854775808");
  EXPECT_EQ(sym_shape_to_string({DimExpr::symbol("n"), 3}), "[n, 3]");
  for (const char* name : {"batch size", "it's", "back\\slash", "", "2x", "floor", "ünïcode", "a.b"}) {
    DimExpr e = DimExpr::symbol(name) * 2 + 1;
    EXPECT_EQ(parse(e.to_string()), e) << name;
  }
  EXPECT_EQ(parse((DimExpr(kMin) * DimExpr::symbol("n") - 5).to_string()), DimExpr(kMin) * DimExpr::symbol("n") - 5);
}

TEST(DimExpr, RefusesWhatIsNoExpression) {
  for (const char* text : {"", "a +", "(a", "a)", "floor(a)", "floor a", "1 2", "a b", "min(a)", "$", "'open",
                           "9223372036854775808", "99999999999999999999", "-9223372036854775809", "a / 2"}) {
    EXPECT_EQ(DimExpr::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_FALSE(DimExpr::parse(std::string(100000, '(')).is_ok());
  EXPECT_FALSE(DimExpr::parse(std::string(50000, '(')).is_ok());
}

TEST(DimExpr, EvaluatesOrSaysWhyNot) {
  DimExpr n = DimExpr::symbol("n");
  EXPECT_EQ(*DimExpr::floor_div(n - 8, 3).evaluate({{"n", 1}}), -3);
  EXPECT_EQ(*DimExpr::mod(n - 8, 3).evaluate({{"n", 1}}), 2);
  Result<int64_t> missing = n.evaluate({});
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument);
  EXPECT_NE(missing.status().message().find("'n'"), std::string::npos);
  EXPECT_FALSE((n * n).evaluate({{"n", kMax}}).is_ok());
  EXPECT_FALSE((n + 1).evaluate({{"n", kMax}}).is_ok());
  EXPECT_FALSE(DimExpr::floor_div(1, n).evaluate({{"n", 0}}).is_ok());
}

TEST(DimExpr, OverflowAndZeroDivisionAreUndefinedAndAbsorb) {
  DimExpr n = DimExpr::symbol("n");
  DimExpr undefined = DimExpr::floor_div(n, 0);
  EXPECT_TRUE(undefined.is_undefined());
  EXPECT_TRUE((DimExpr(kMax) + 1).is_undefined());
  EXPECT_TRUE((DimExpr(kMin) * -1).is_undefined());
  EXPECT_TRUE((DimExpr(0) - DimExpr(kMin)).is_undefined());
  EXPECT_TRUE((undefined * 0).is_undefined());
  EXPECT_TRUE(DimExpr::min(undefined, 1).is_undefined());
  EXPECT_FALSE(undefined.is_constant());
  EXPECT_FALSE(undefined.evaluate({{"n", 1}}).is_ok());
  EXPECT_EQ(parse(undefined.to_string()), undefined);
}

TEST(DimExpr, GrowthIsBounded) {
  DimExpr e = DimExpr::symbol("a") + DimExpr::symbol("b") + 1;
  for (int i = 0; i < 40; ++i) e = e * e;
  EXPECT_TRUE(e.is_undefined());
  DimExpr nested = DimExpr::symbol("a");
  for (int i = 0; i < 1000; ++i) nested = DimExpr::floor_div(nested * nested + DimExpr::symbol("b"), nested + 7);
  EXPECT_TRUE(nested.is_undefined());
}

TEST(DimExpr, KnowsBounds) {
  EXPECT_EQ(parse("n + 1").lower_bound(), 1);
  EXPECT_EQ(parse("n + 1").upper_bound(), std::nullopt);
  EXPECT_EQ(parse("3 - n").upper_bound(), 3);
  EXPECT_EQ(parse("mod(n, 4) + 1").upper_bound(), 4);
  EXPECT_EQ(parse("max(n - 2, 0)").lower_bound(), 0);
  EXPECT_EQ(parse("n - 1").lower_bound(), -1);
  EXPECT_EQ(parse("n - m").lower_bound(), std::nullopt);
}

TEST(DimExpr, Substitutes) {
  EXPECT_EQ(parse("floor(n*m / 2) + k").substitute({{"n", DimExpr(4)}, {"k", parse("m")}}), parse("3*m"));
  EXPECT_EQ(parse("min(n, m)").substitute({{"n", parse("m + 1")}}), parse("m"));
  EXPECT_EQ(parse("n").symbols(), std::vector<std::string>{"n"});
  EXPECT_EQ(parse("floor(b / a) + max(c, b)").symbols(), (std::vector<std::string>{"a", "b", "c"}));
}

// Runs the postfix form the way the engine does.
std::optional<int64_t> run_postfix(const DimExpr& e, const Env& env) {
  std::vector<int64_t> stack;
  bool failed = false;
  e.visit_postfix([&](DimExpr::Op op, int64_t value, std::string_view symbol) {
    if (op == DimExpr::Op::kConst) return stack.push_back(value);
    if (op == DimExpr::Op::kSymbol) return stack.push_back(env.find(symbol)->second);
    int64_t b = stack.back();
    stack.pop_back();
    int64_t& a = stack.back();
    auto floor_div = [](int64_t p, int64_t q) { return p / q - (p % q != 0 && ((p < 0) != (q < 0)) ? 1 : 0); };
    bool divides = op == DimExpr::Op::kFloorDiv || op == DimExpr::Op::kMod;
    if (failed || (divides && b == 0)) {
      failed = true;
      return;
    }
    switch (op) {
      case DimExpr::Op::kAdd: a += b; break;
      case DimExpr::Op::kMul: a *= b; break;
      case DimExpr::Op::kFloorDiv: a = floor_div(a, b); break;
      case DimExpr::Op::kMod: a -= b * floor_div(a, b); break;
      case DimExpr::Op::kMin: a = std::min(a, b); break;
      default: a = std::max(a, b); break;
    }
  });
  if (failed) return std::nullopt;
  EXPECT_EQ(stack.size(), 1u);
  return stack.back();
}

// A random expression and, computed beside it with plain integers, its value in every environment (nullopt: undefined).
struct Sample {
  DimExpr expr;
  std::vector<std::optional<int64_t>> values;
};

Sample random_sample(std::mt19937& rng, const std::vector<Env>& envs, int depth) {
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Sample s;
  if (depth == 0 || pick(5) == 0) {
    if (pick(2) == 0) {
      int64_t c = pick(13) - 4;
      s.expr = c;
      s.values.assign(envs.size(), c);
    } else {
      std::string name(1, static_cast<char>('a' + pick(3)));
      s.expr = DimExpr::symbol(name);
      for (const Env& env : envs) s.values.push_back(env.at(name));
    }
    return s;
  }
  Sample p = random_sample(rng, envs, depth - 1), q = random_sample(rng, envs, depth - 1);
  int op = pick(7);
  auto floor_div = [](int64_t x, int64_t y) { return x / y - (x % y != 0 && ((x < 0) != (y < 0)) ? 1 : 0); };
  switch (op) {
    case 0: s.expr = p.expr + q.expr; break;
    case 1: s.expr = p.expr - q.expr; break;
    case 2: s.expr = p.expr * q.expr; break;
    case 3: s.expr = DimExpr::floor_div(p.expr, q.expr); break;
    case 4: s.expr = DimExpr::mod(p.expr, q.expr); break;
    case 5: s.expr = DimExpr::min(p.expr, q.expr); break;
    default: s.expr = DimExpr::max(p.expr, q.expr); break;
  }
  for (size_t i = 0; i < envs.size(); ++i) {
    std::optional<int64_t> r;
    if (p.values[i] && q.values[i]) {
      int64_t x = *p.values[i], y = *q.values[i];
      if (op == 0) r = x + y;
      if (op == 1) r = x - y;
      if (op == 2) r = x * y;
      if (op == 3 && y != 0) r = floor_div(x, y);
      if (op == 4 && y != 0) r = x - y * floor_div(x, y);
      if (op == 5) r = std::min(x, y);
      if (op == 6) r = std::max(x, y);
    }
    s.values.push_back(r);
  }
  return s;
}

TEST(DimExpr, RandomExpressionsKeepTheirValue) {
  std::mt19937 rng(7);
  std::vector<Env> envs;
  for (int i = 0; i < 12; ++i) {
    Env env;
    for (const char* name : {"a", "b", "c"}) env[name] = i < 2 ? i : static_cast<int64_t>(rng() % 50);
    envs.push_back(env);
  }
  std::map<std::string, Sample> seen;
  int defined = 0;
  for (int round = 0; round < 4000; ++round) {
    Sample s = random_sample(rng, envs, 1 + round % 4);
    std::string text = s.expr.to_string();
    ASSERT_EQ(parse(text), s.expr) << text;
    if (s.expr.is_undefined()) continue;  // a constant 0 divides somewhere
    for (size_t i = 0; i < envs.size(); ++i) {
      if (!s.values[i]) continue;  // the simplified form may be defined where the original divides by zero
      Result<int64_t> value = s.expr.evaluate(envs[i]);
      ASSERT_TRUE(value.is_ok()) << text << ": " << value.status().to_string();
      ASSERT_EQ(*value, *s.values[i]) << text;
      ASSERT_EQ(run_postfix(s.expr, envs[i]), *value) << text;
      ASSERT_LE(s.expr.lower_bound().value_or(*value), *value) << text;
      ASSERT_GE(s.expr.upper_bound().value_or(*value), *value) << text;
      std::map<std::string, DimExpr, std::less<>> constants;
      for (const auto& [name, v] : envs[i]) constants.emplace(name, DimExpr(v));
      ASSERT_EQ(s.expr.substitute(constants).constant(), *value) << text;
      ++defined;
    }
    // The order is total and agrees with equality.
    auto [it, fresh] = seen.try_emplace(text, s);
    ASSERT_TRUE(fresh || it->second.expr == s.expr) << text;
    ASSERT_FALSE(s.expr < it->second.expr);
  }
  EXPECT_GT(defined, 20000);
}

}  // namespace
}  // namespace flywheel
