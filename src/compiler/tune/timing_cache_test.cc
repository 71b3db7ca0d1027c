// SPDX-License-Identifier: Apache-2.0
#include "compiler/tune/timing_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace flywheel::tune {
namespace {

class TimingCacheTest : public testing::Test {
 protected:
  TimingCacheTest()
      : path_((std::filesystem::temp_directory_path() / ("fw_cache_" + std::to_string(getpid()))).string()) {}
  ~TimingCacheTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string read() {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path_;
};

TEST_F(TimingCacheTest, KeepsWhatWasRecorded) {
  auto cache = TimingCache::load(path_);
  ASSERT_TRUE(cache.is_ok());
  EXPECT_EQ(cache->size(), 0U);
  cache->record("machine; problem", "conv_a", 1.25);
  cache->record("machine; problem", "conv_b", 0.5);
  ASSERT_TRUE(cache->save(path_).is_ok());
  const std::string bytes = read();
  auto back = TimingCache::load(path_);
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(back->find("machine; problem", "conv_a"), 1.25);
  EXPECT_EQ(back->find("machine; problem", "conv_c"), std::nullopt);
  EXPECT_EQ(back->find("other", "conv_a"), std::nullopt);
  ASSERT_TRUE(back->save(path_).is_ok());
  EXPECT_EQ(read(), bytes);
}

TEST_F(TimingCacheTest, GivesBackWhatAFileOfItWould) {
  TimingCache cache;
  cache.record("machine; problem", "conv", 0.123456789);
  ASSERT_TRUE(cache.save(path_).is_ok());
  auto back = TimingCache::load(path_);
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  EXPECT_EQ(back->find("machine; problem", "conv"), 0.123457);
  EXPECT_EQ(cache.find("machine; problem", "conv"), 0.123457);
}

TEST_F(TimingCacheTest, NamesTheDamagedLine) {
  for (const char* line : {"no tab here", "abc\tconv\tkey", "1.5\tonly_tactic", "-3\tconv\tkey", "nan\tconv\tkey"}) {
    write(std::string("flywheel timing cache 1\n1.0\tconv\tkey\n") + line + "\n");
    auto cache = TimingCache::load(path_);
    ASSERT_FALSE(cache.is_ok()) << line;
    EXPECT_EQ(cache.status().code(), Code::kCorrupt);
    EXPECT_NE(cache.status().message().find("line 3"), std::string::npos) << cache.status().message();
  }
  write("something else\n");
  EXPECT_EQ(TimingCache::load(path_).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace flywheel::tune
