// SPDX-License-Identifier: Apache-2.0
#include "base/resident_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

namespace flywheel {
namespace {

int64_t resident_file_kb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kb = -1;
  while (status >> word) {
    if (word == "RssFile:") status >> kb;
  }
  return kb;
}

struct Interface {
  virtual ~Interface() = default;
  virtual std::string answer() const { return "from a table that relocation wrote"; }
};

TEST(ResidentMemoryTest, CodeThatIsNotInUseIsGivenBack) {
  const int64_t before_kb = resident_file_kb();
  ASSERT_GT(before_kb, 0);
  give_back_resident_memory();
  EXPECT_LT(resident_file_kb(), before_kb);
}

TEST(ResidentMemoryTest, WhatWasWrittenStays) {
  static std::string written = "before";
  written = "a static variable";
  auto object = std::make_unique<Interface>();
  give_back_resident_memory();
  EXPECT_EQ(written, "a static variable");
  EXPECT_EQ(object->answer(), "from a table that relocation wrote");
  EXPECT_THROW(throw std::string("unwinding reads tables"), std::string);
}

}  // namespace
}  // namespace flywheel
