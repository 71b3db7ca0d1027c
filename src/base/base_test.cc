// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/aligned_buffer.h"
#include "base/base64.h"
#include "base/cpu_info.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace flywheel {
namespace {

std::string temp_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("fw_base_" + std::to_string(getpid()) + "_" + name)).string();
}

TEST(Status, ContextKeepsTheCode) {
  const Status status = not_found("x").with_context("loading");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.to_string(), "not found: loading: x");
  EXPECT_TRUE(Status::ok().with_context("loading").is_ok());
}

TEST(MappedFile, TemporaryNamesDifferAndAreKnown) {
  const std::string name = temporary_name("/a/b.engine");
  EXPECT_NE(name, temporary_name("/a/b.engine"));
  EXPECT_TRUE(name.starts_with("/a/b.engine."));
  EXPECT_TRUE(is_temporary_name(name));
  for (const char* other : {"weights.part0", "b.engine", "b.tmp.", "b.tmp.0123456789abcdeX", ".tmp.0123456789abcdef"})
    EXPECT_FALSE(is_temporary_name(other)) << other;
}

TEST(MappedFile, WritingLeavesNothingBeside) {
  const std::filesystem::path folder = temp_path("atomic");
  std::filesystem::create_directory(folder);
  const std::string text = "text";
  EXPECT_TRUE(write_file_atomically((folder / "a").string(), std::as_bytes(std::span(text))).is_ok());
  std::filesystem::create_directory(folder / "taken");
  EXPECT_FALSE(write_file_atomically((folder / "taken").string(), std::as_bytes(std::span(text))).is_ok());
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) entries += entry.exists() ? 1 : 0;
  EXPECT_EQ(entries, 2U);
  std::filesystem::remove_all(folder);
}

TEST(AlignedBuffer, IsAlignedAndZeroed) {
  for (size_t size : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    auto buffer = AlignedBuffer::allocate(size, "a test");
    ASSERT_TRUE(buffer.is_ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kBufferAlignment, 0U);
    EXPECT_EQ(buffer->size_bytes(), size);
    EXPECT_EQ(buffer->data()[0], std::byte{0});
    EXPECT_EQ(buffer->data()[size - 1], std::byte{0});
  }
}

TEST(AlignedBuffer, RefusesWhatTheSystemCannotGive) {
  auto buffer = AlignedBuffer::allocate(size_t{1} << 60, "the test arena");
  ASSERT_FALSE(buffer.is_ok());
  EXPECT_EQ(buffer.status().code(), Code::kOutOfMemory);
  EXPECT_NE(buffer.status().message().find("the test arena needs 1152921504606846976 bytes"), std::string::npos);
}

TEST(MappedFile, WritesAtomicallyAndReadsBack) {
  const std::string path = temp_path("file");
  const std::string text = "hello";
  ASSERT_TRUE(write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size()))).is_ok());
  auto back = read_text_file(path, 100);
  ASSERT_TRUE(back.is_ok());
  EXPECT_EQ(*back, text);
  EXPECT_EQ(read_text_file(path, 4).status().code(), Code::kInvalidArgument);
  std::filesystem::remove(path);
}

TEST(MappedFile, ACopyKeepsWhatTheFileHeld) {
  const std::string path = temp_path("copied");
  const std::string text(100'000, 'a');
  ASSERT_TRUE(write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size()))).is_ok());
  auto copy = MappedFile::open(path, FileAccess::kCopy);
  ASSERT_TRUE(copy.is_ok()) << copy.status().to_string();
  std::filesystem::resize_file(path, 0);  // reading a mapping would end the process now
  const auto bytes = copy->bytes();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), text);
  EXPECT_TRUE(MappedFile::open(path, FileAccess::kCopy)->bytes().empty());
  std::filesystem::remove(path);
}

TEST(MappedFile, DoesNotWaitForThePipesWriter) {
  const std::string path = temp_path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const Status& status : {MappedFile::open(path).status(), MappedFile::open(path, FileAccess::kCopy).status(),
                               read_text_file(path, 100).status(), read_text_file("/dev/zero", 100).status()}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("is not a regular file"), std::string::npos) << status.message();
  }
  std::filesystem::remove(path);
}

TEST(MappedFile, NamesWhatCannotBeOpened) {
  EXPECT_EQ(MappedFile::open("/no/such/file").status().code(), Code::kNotFound);
  EXPECT_EQ(MappedFile::open("/tmp").status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(write_file_atomically("/no/such/folder/file", {}).is_ok());
}

TEST(Machine, IsaCanBeLoweredButNotRaised) {
  auto plain = detect_machine();
  ASSERT_TRUE(plain.is_ok());
  const char* before = std::getenv("FLYWHEEL_ISA");
  const std::string saved = before == nullptr ? "" : before;
  setenv("FLYWHEEL_ISA", "portable", 1);
  auto lowered = detect_machine();
  ASSERT_TRUE(lowered.is_ok());
  EXPECT_EQ(lowered->isa, Isa::kPortable);
  EXPECT_EQ(lowered->hardware_isa, plain->hardware_isa);
  setenv("FLYWHEEL_ISA", "sse9", 1);
  auto unknown = detect_machine();
  ASSERT_FALSE(unknown.is_ok());
  EXPECT_NE(unknown.status().message().find("unknown instruction set 'sse9'"), std::string::npos);
  if (saved.empty()) {
    unsetenv("FLYWHEEL_ISA");
  } else {
    setenv("FLYWHEEL_ISA", saved.c_str(), 1);
  }
}

TEST(Base64, DecodesWhatItTakes) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9v"), "foo");
  EXPECT_EQ(decode_base64("Zm9vYg"), "foob");
  EXPECT_EQ(decode_base64("+/8A"), std::string("\xfb\xff\0", 3));
  for (const char* bad : {"Z", "Zg=", "Z===", "Zm9v=", "Zm 9", "Zm-_", "=Zm9", "Zm9v\n"}) {
    EXPECT_EQ(decode_base64(bad), std::nullopt) << bad;
  }
}

TEST(JsonStrings, AreAlwaysValid) {
  std::string out;
  append_json_string(out, "a\"\\\n\t\x01\xff \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x98\x80");
  EXPECT_EQ(out,
            "\"a\\\"\\\\\\n\\t\\u0001\xef\xbf\xbd \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x98\x80\"");
}

}  // namespace
}  // namespace flywheel
