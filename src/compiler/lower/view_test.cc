// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/view.h"

#include <gtest/gtest.h>

namespace flywheel::lower {
namespace {

DimExpr sym(const char* name) { return DimExpr::symbol(name); }

TEST(View, ReshapeOfContiguousIsAlwaysAView) {
  Storage storage;
  const View view = View::contiguous(&storage, {sym("n"), 12, 64});
  auto out = reshape_view(view, {sym("n"), 768});
  ASSERT_TRUE(out);
  EXPECT_TRUE(out->is_contiguous());
  EXPECT_EQ(out->strides, (SymShape{768, 1}));
}

TEST(View, SplittingHeadsOfASliceKeepsItsRowStride) {
  // The query part of a merged projection: [b, s, 768] inside [b, s, 2304].
  Storage storage;
  const View whole = View::contiguous(&storage, {sym("b"), sym("s"), 2304});
  const View part = slice_view(whole, 2, 768, 1, 768);
  EXPECT_FALSE(part.is_contiguous());
  auto heads = reshape_view(part, {sym("b"), sym("s"), 12, 64});
  ASSERT_TRUE(heads);
  EXPECT_EQ(heads->strides, (SymShape{sym("s") * DimExpr(2304), 2304, 64, 1}));
  EXPECT_EQ(heads->offset, DimExpr(768));
  const View by_head = transpose_view(*heads, {0, 2, 1, 3});
  EXPECT_EQ(by_head.dims, (SymShape{sym("b"), 12, sym("s"), 64}));
  EXPECT_EQ(by_head.strides, (SymShape{sym("s") * DimExpr(2304), 64, 2304, 1}));
  EXPECT_TRUE(by_head.innermost_unit());
}

TEST(View, MergingDimsThatDoNotNestIsRefused) {
  Storage storage;
  const View part = slice_view(View::contiguous(&storage, {sym("n"), 8, 16}), 2, 0, 1, 4);
  EXPECT_FALSE(reshape_view(part, {sym("n"), 32}));
  EXPECT_TRUE(reshape_view(part, {sym("n") * DimExpr(8), 4}));
}

TEST(View, ADimOfExtentOneHidesNoGap) {
  Storage storage;
  const View rows = slice_view(View::contiguous(&storage, {8, 1, 16}), 2, 0, 1, 4);
  EXPECT_FALSE(reshape_view(rows, {32}));
  EXPECT_FALSE(reshape_view(slice_view(View::contiguous(&storage, {2, 8, 1, 16}), 3, 0, 1, 4), {2, 32}));
  const View whole = slice_view(View::contiguous(&storage, {8, 2, 1, 16}), 0, 0, 1, 4);
  const View strange{&storage, 0, {4, 2, 1, 16}, {32, 16, 7, 1}};
  for (const View& view : {whole, strange}) {
    auto flat = reshape_view(view, {128});
    ASSERT_TRUE(flat);
    EXPECT_EQ(flat->strides, (SymShape{1}));
  }
}

TEST(View, ReshapeIgnoresDimsOfExtentOne) {
  Storage storage;
  const View part = slice_view(View::contiguous(&storage, {sym("n"), 8, 16}), 1, 3, 1, 1);
  auto out = reshape_view(part, {sym("n"), 16});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->strides, (SymShape{128, 1}));
  EXPECT_EQ(out->offset, DimExpr(48));
  auto wider = reshape_view(part, {1, sym("n"), 1, 16});
  ASSERT_TRUE(wider);
  EXPECT_EQ(wider->strides[1], DimExpr(128));
}

TEST(View, CollapseLeadingMergesRows) {
  Storage storage;
  const View whole = View::contiguous(&storage, {sym("b"), sym("s"), 96});
  auto rows = collapse_leading(slice_view(whole, 2, 32, 1, 32), 2);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->dims, (SymShape{sym("b") * sym("s"), 32}));
  EXPECT_EQ(rows->strides, (SymShape{96, 1}));
  EXPECT_FALSE(collapse_leading(slice_view(whole, 1, 0, 1, sym("t")), 2));
  auto grown = collapse_leading(View::contiguous(&storage, {7}), 2);
  ASSERT_TRUE(grown);
  EXPECT_EQ(grown->dims, (SymShape{1, 7}));
}

TEST(View, BroadcastGivesStrideZero) {
  Storage storage;
  const View bias = broadcast_view(View::contiguous(&storage, {1, 64}), {sym("n"), 5, 64});
  EXPECT_EQ(bias.strides, (SymShape{0, 0, 1}));
}

TEST(View, NegativeStepsRunBackwards) {
  Storage storage;
  const View back = slice_view(View::contiguous(&storage, {10}), 0, 9, -1, 10);
  EXPECT_EQ(back.offset, DimExpr(9));
  EXPECT_EQ(back.strides, (SymShape{-1}));
}

}  // namespace
}  // namespace flywheel::lower
