// SPDX-License-Identifier: Apache-2.0
#include "tensor/dim_range.h"

#include <gtest/gtest.h>

namespace flywheel {
namespace {

std::optional<int64_t> largest(std::string_view text) {
  return largest_value(DimExpr::parse(text).value(), {{"n", 1}, {"s", 2}}, {{"n", 8}, {"s", 10}});
}

TEST(DimRange, TheLargestIsNotAlwaysAtTheMaximum) {
  EXPECT_EQ(largest("n*s"), 80);
  EXPECT_EQ(largest("12 - n"), 11);
  EXPECT_EQ(largest("max(5 - n, 0) * s"), 40);
  EXPECT_EQ(largest("s - n"), 9);
  EXPECT_EQ(largest("floor((s - 3) / 2) + 1"), 4);
  EXPECT_EQ(largest("floor(64 / n)"), 64);
  EXPECT_EQ(largest("mod(s, 4)"), 3);
  EXPECT_EQ(largest("mod(s, 11)"), 10);
  EXPECT_EQ(largest("min(s, 4) * n"), 32);
  EXPECT_EQ(largest("7"), 7);
}

TEST(DimRange, NothingIsKnownOfWhatMayFail) {
  EXPECT_EQ(largest("floor(8 / (n - 1))"), std::nullopt);
  EXPECT_EQ(largest("n * 9223372036854775807"), std::nullopt);
  EXPECT_EQ(largest("t + 1"), std::nullopt);
}

TEST(DimRange, HoldsForEveryValue) {
  for (const char* text :
       {"s - floor(s / 2) * 2 + n", "max(n - s, s - n)", "min(n, 12 - s) * (s - 1)", "mod(s * n, 7) + floor(s / n)"}) {
    const DimExpr expr = DimExpr::parse(text).value();
    const std::optional<int64_t> bound = largest(text);
    ASSERT_TRUE(bound) << text;
    for (int64_t n = 1; n <= 8; ++n) {
      for (int64_t s = 2; s <= 10; ++s) EXPECT_LE(expr.evaluate({{"n", n}, {"s", s}}).value(), *bound) << text;
    }
  }
}

}  // namespace
}  // namespace flywheel
