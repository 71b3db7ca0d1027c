// SPDX-License-Identifier: Apache-2.0
#include "server/shared_memory/region_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>

namespace flywheel::shared_memory {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// A client's object of shared memory, gone with the test.
class ClientMemory {
 public:
  explicit ClientMemory(size_t bytes)
      : key_("/fw_test_" + std::to_string(::getpid()) + "_" + std::to_string(count_++)) {
    fd_ = ::shm_open(key_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    resize(bytes);
  }
  ~ClientMemory() {
    ::close(fd_);
    ::shm_unlink(key_.c_str());
  }
  void resize(size_t bytes) { ASSERT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0); }
  void put(size_t at, std::string_view text) {
    ASSERT_EQ(::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(at)), static_cast<ssize_t>(text.size()));
  }
  std::string get(size_t at, size_t size) const {
    std::string text(size, '?');
    EXPECT_EQ(::pread(fd_, text.data(), size, static_cast<off_t>(at)), static_cast<ssize_t>(size));
    return text;
  }
  const std::string& key() const { return key_; }

 private:
  static inline int count_ = 0;
  const std::string key_;
  int fd_ = -1;
};

std::string_view text_of(const InputBytes& input) {
  return {reinterpret_cast<const char*>(input.bytes.data()), input.bytes.size()};
}

TEST(RegionRegistry, ReadsWhatTheClientWroteAndKeepsItAfterwards) {
  ClientMemory memory(8192);
  memory.put(4096 + 10, "hello");
  RegionRegistry registry;
  ASSERT_TRUE(registry.register_region("r", memory.key(), 4096, 100).is_ok());
  Result<InputBytes> input = registry.read("r", 10, 5);
  ASSERT_TRUE(input.is_ok()) << input.status().message();
  EXPECT_EQ(text_of(*input), "hello");
  memory.put(4096 + 10, "HELLO");
  ASSERT_TRUE(registry.unregister("r").is_ok());
  EXPECT_EQ(text_of(*input), "hello");
}

TEST(RegionRegistry, OffsetsNeedNotBePageAligned) {
  ClientMemory memory(100);
  memory.put(33, "odd");
  RegionRegistry registry;
  ASSERT_TRUE(registry.register_region("r", memory.key(), 33, 3).is_ok());
  EXPECT_EQ(text_of(registry.read("r", 0, 3).value()), "odd");
}

TEST(RegionRegistry, WritesOutputsAlsoAfterTheRegionIsUnregistered) {
  ClientMemory memory(64);
  RegionRegistry registry;
  ASSERT_TRUE(registry.register_region("r", memory.key(), 16, 32).is_ok());
  OutputPlace place = registry.find("r", 4, 8).value();
  ASSERT_TRUE(registry.unregister("").is_ok());
  const std::string text = "12345678";
  EXPECT_TRUE(place.write(std::as_bytes(std::span(text))).is_ok());
  EXPECT_EQ(memory.get(20, 8), text);
  const Status too_much = place.write(std::as_bytes(std::span("123456789")));
  EXPECT_EQ(too_much.code(), Code::kInvalidArgument);
  EXPECT_NE(too_much.message().find("should be at least 10 bytes to hold the results"), std::string::npos);
}

TEST(RegionRegistry, AClientThatShortensItsMemoryGetsAnErrorAndHarmsNobody) {
  ClientMemory memory(8192);
  RegionRegistry registry;
  ASSERT_TRUE(registry.register_region("r", memory.key(), 0, 8192).is_ok());
  OutputPlace place = registry.find("r", 0, 8192).value();
  memory.resize(100);
  EXPECT_EQ(registry.read("r", 0, 8192).status().code(), Code::kInvalidArgument);
  const std::string text(8192, 'x');
  EXPECT_EQ(place.write(std::as_bytes(std::span(text))).code(), Code::kInvalidArgument);
  EXPECT_TRUE(registry.read("r", 0, 100).is_ok());
}

TEST(RegionRegistry, RefusesWhatTritonRefusesInItsWords) {
  ClientMemory memory(100);
  RegionRegistry registry;
  auto message = [&](std::string_view name, const std::string& key, uint64_t offset, uint64_t size) {
    return registry.register_region(name, key, offset, size).message();
  };
  const std::string invalid = "failed to register shared memory region 'r': invalid args";
  EXPECT_EQ(message("r", memory.key(), 0, 101), invalid);
  EXPECT_EQ(message("r", memory.key(), 1, 100), invalid);
  EXPECT_EQ(message("r", memory.key(), kMax, 2), invalid);
  EXPECT_EQ(message("r", memory.key(), 2, kMax), invalid);
  EXPECT_EQ(message("r", "/no_such_memory", 0, 1), "Unable to open shared memory region: '/no_such_memory'");
  EXPECT_EQ(message("r", "/../../etc/passwd", 0, 1), "Unable to open shared memory region: '/../../etc/passwd'");
  EXPECT_NE(message("r", "/triton_python_backend_shm_region_1", 0, 1).find("reserved prefix"), std::string::npos);
  EXPECT_EQ(message("", memory.key(), 0, 1), "'region name' is necessary to register system shared memory region");
  EXPECT_FALSE(registry.register_region("r", memory.key(), 0, 0).is_ok());
  ASSERT_TRUE(registry.register_region("r", memory.key(), 50, 50).is_ok());
  const Status twice = registry.register_region("r", memory.key(), 0, 1);
  EXPECT_EQ(twice.code(), Code::kAlreadyExists);
  EXPECT_EQ(twice.message(), "shared memory region 'r' already in manager");
  EXPECT_EQ(registry.read("q", 0, 1).status().message(), "Unable to find shared memory region: 'q'");
  EXPECT_EQ(registry.read("r", 50, 1).status().message(), "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(registry.read("r", 1, 50).status().message(), "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_EQ(registry.find("r", 1, kMax).status().message(), "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_EQ(registry.describe("q").status().message(), "Unable to find system shared memory region: 'q'");
  EXPECT_TRUE(registry.unregister("q").is_ok());
}

TEST(RegionRegistry, InputsOfAllRequestsStayUnderTheirBudget) {
  ClientMemory memory(100);
  RegistryOptions options;
  options.max_input_bytes = 100;
  options.max_regions = 1;
  RegionRegistry registry(options);
  ASSERT_TRUE(registry.register_region("r", memory.key(), 0, 100).is_ok());
  EXPECT_EQ(registry.register_region("s", memory.key(), 0, 100).code(), Code::kUnavailable);
  {
    Result<InputBytes> first = registry.read("r", 0, 60);
    EXPECT_TRUE(first.is_ok());
    EXPECT_EQ(registry.read("r", 0, 60).status().code(), Code::kUnavailable);
  }
  EXPECT_TRUE(registry.read("r", 0, 60).is_ok());
}

TEST(RegionRegistry, DescribesAllRegionsByName) {
  ClientMemory memory(100);
  RegionRegistry registry;
  ASSERT_TRUE(registry.register_region("b", memory.key(), 0, 100).is_ok());
  ASSERT_TRUE(registry.register_region("a", memory.key(), 10, 20).is_ok());
  const std::vector<RegionInfo> all = registry.describe("").value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[0].key, memory.key());
  EXPECT_EQ(all[0].offset, 10u);
  EXPECT_EQ(all[0].byte_size, 20u);
}

TEST(RegionRegistry, RefusesEverythingUnlessItIsAllowed) {
  RegistryOptions options;
  options.enabled = false;
  RegionRegistry registry(options);
  EXPECT_EQ(registry.register_region("r", "/x", 0, 1).code(), Code::kUnsupported);
  EXPECT_EQ(registry.read("r", 0, 1).status().message(),
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
  EXPECT_TRUE(registry.describe("").is_ok());
}

}  // namespace
}  // namespace flywheel::shared_memory
