// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/memory_plan.h"

#include <gtest/gtest.h>

namespace flywheel::lower {
namespace {

// One step that writes `elements` floats to the arena.
LoweredGraph one_block(const char* elements) {
  LoweredGraph lowered;
  auto storage = std::make_unique<Storage>();
  storage->elements = DimExpr::parse(elements).value();
  lowered.steps.emplace_back().outputs = {View::contiguous(storage.get(), {storage->elements})};
  lowered.storages.push_back(std::move(storage));
  return lowered;
}

TEST(MemoryPlan, ABlockHasRoomForTheShapeThatNeedsMost) {
  // 25 elements at n = 5, 16 at the profile's maximum.
  LoweredGraph lowered = one_block("n * (10 - n)");
  const Result<uint64_t> arena_bytes = plan_memory(lowered, {{"n", 1}}, {{"n", 8}});
  ASSERT_TRUE(arena_bytes.is_ok()) << arena_bytes.status().to_string();
  EXPECT_GE(lowered.storages[0]->size_bytes, 25 * sizeof(float));
  EXPECT_GE(*arena_bytes, lowered.storages[0]->size_bytes);
}

TEST(MemoryPlan, NoMoreThanThatWhereItIsAtTheMaximum) {
  LoweredGraph lowered = one_block("n * 3");
  EXPECT_TRUE(plan_memory(lowered, {{"n", 1}}, {{"n", 8}}).is_ok());
  EXPECT_EQ(lowered.storages[0]->size_bytes, 24 * sizeof(float));
}

TEST(MemoryPlan, WhatIsTooLargeIsRefused) {
  LoweredGraph lowered = one_block("n * 1000000000000000000");
  EXPECT_FALSE(plan_memory(lowered, {{"n", 1}}, {{"n", 8}}).is_ok());
}

}  // namespace
}  // namespace flywheel::lower
