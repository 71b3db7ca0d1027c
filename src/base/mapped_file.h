// SPDX-License-Identifier: Apache-2.0
// A file's bytes, mapped read-only or read into memory of their own. The engine reader hands out spans into it, so
// whoever holds such a span keeps this alive. Any thread. What is mapped changes when someone writes into the file, and
// ends the process when someone truncates it: long-lived processes copy the files that others may replace.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel {

enum class FileAccess { kMap, kCopy };

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // kNotFound when it does not exist; kInvalidArgument for a folder, a pipe, a device or an unreadable file, with the
  // system's reason. Never waits for a writer.
  static Result<MappedFile> open(const std::string& path, FileAccess access = FileAccess::kMap);
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_bytes_}; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// A name beside `path` that no other process takes, not even one of another container with the same process id, and
// whether a name is such.
std::string temporary_name(const std::string& path);
bool is_temporary_name(std::string_view name);

// Writes beside `path` and renames over it, so that a reader sees the old file or the whole new one, also after a
// crash.
Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes);
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes);

}  // namespace flywheel
