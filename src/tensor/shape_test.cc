// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

#include <gtest/gtest.h>

#include <limits>

namespace flywheel {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(Shape, CountsElementsAndRefusesWhatOverflows) {
  EXPECT_EQ(checked_element_count(Dims{}), 1);
  EXPECT_EQ(checked_element_count(Dims{2, 3, 4}), 24);
  EXPECT_EQ(checked_element_count(Dims{kHuge, 0, kHuge}), std::nullopt);  // the nonzero part alone overflows
  EXPECT_EQ(checked_element_count(Dims{0, kHuge}), 0);
  EXPECT_EQ(checked_element_count(Dims{kHuge, 2}), std::nullopt);
  EXPECT_EQ(checked_element_count(Dims{-1, 2}), std::nullopt);
}

TEST(Shape, DescribesViews) {
  TensorDesc desc = TensorDesc::contiguous(DType::kFloat32, {2, 3, 4});
  EXPECT_EQ(desc.strides, (Dims{12, 4, 1}));
  EXPECT_TRUE(desc.is_contiguous());
  EXPECT_EQ(desc.size_bytes(), 96);
  EXPECT_EQ(desc.to_string(), "f32 2x3x4");
  desc.strides = {4, 8, 1};
  EXPECT_FALSE(desc.is_contiguous());
  EXPECT_EQ(desc.to_string(), "f32 2x3x4 strides 4,8,1");
  EXPECT_TRUE((TensorDesc{DType::kInt8, {1, 5}, {77, 1}}.is_contiguous()));
}

TEST(Shape, BroadcastsAsNumPyDoes) {
  EXPECT_EQ(*broadcast_dims(Dims{8, 1, 6, 1}, Dims{7, 1, 5}), (Dims{8, 7, 6, 5}));
  EXPECT_EQ(*broadcast_dims(Dims{}, Dims{3}), (Dims{3}));
  EXPECT_EQ(*broadcast_dims(Dims{0}, Dims{1}), (Dims{0}));
  Result<Dims> bad = broadcast_dims(Dims{2, 3}, Dims{2});
  ASSERT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace flywheel
