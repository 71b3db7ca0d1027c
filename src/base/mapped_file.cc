// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

namespace flywheel {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";
constexpr size_t kTemporaryDigits = 16;

Status system_error(const std::string& path, const char* action) {
  const int error = errno;
  std::string message = fmt::format("cannot {} '{}': {}", action, path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(std::move(message));
  if (error == ENOMEM) return out_of_memory(std::move(message));
  return invalid_argument(std::move(message));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct RegularFile {
  Descriptor file;
  size_t size_bytes;
};

// Opening a pipe would wait for its writer; hence O_NONBLOCK, which means nothing to a regular file.
Result<std::unique_ptr<RegularFile>> open_regular(const std::string& path) {
  std::unique_ptr<RegularFile> opened(
      new RegularFile{{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)}, 0});
  if (opened->file.fd < 0) return system_error(path, "open");
  struct stat info {};
  if (fstat(opened->file.fd, &info) != 0) return system_error(path, "read");
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("'{}' is not a regular file", path));
  opened->size_bytes = static_cast<size_t>(info.st_size);
  return opened;
}

Status read_whole(const RegularFile& opened, const std::string& path, void* out) {
  for (size_t done = 0; done < opened.size_bytes;) {
    const ssize_t got =
        ::pread(opened.file.fd, static_cast<char*>(out) + done, opened.size_bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read");
    if (got == 0) {
      return invalid_argument(
          fmt::format("'{}' became shorter while it was read, {} instead of {} bytes: replace a file by renaming "
                      "another to its name",
                      path, done, opened.size_bytes));
    }
    done += static_cast<size_t>(got);
  }
  return Status::ok();
}

}  // namespace

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path, FileAccess access) {
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<RegularFile> opened, open_regular(path));
  MappedFile mapped;
  if (opened->size_bytes == 0) return mapped;
  const bool copy = access == FileAccess::kCopy;
  void* data = mmap(nullptr, opened->size_bytes, copy ? PROT_READ | PROT_WRITE : PROT_READ,
                    copy ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE, copy ? -1 : opened->file.fd, 0);
  if (data == MAP_FAILED) return system_error(path, "map");
  mapped.data_ = data;
  mapped.size_bytes_ = opened->size_bytes;
  if (copy) {
    madvise(data, opened->size_bytes, MADV_HUGEPAGE);  // a wish; failing it changes nothing
    FW_RETURN_IF_ERROR(read_whole(*opened, path, data));
    if (mprotect(data, opened->size_bytes, PROT_READ) != 0) return system_error(path, "protect");
  }
  return mapped;
}

std::string temporary_name(const std::string& path) {
  std::random_device random;
  return fmt::format("{}{}{:08x}{:08x}", path, kTemporaryMark, random(), random());
}

bool is_temporary_name(std::string_view name) {
  if (name.size() <= kTemporaryMark.size() + kTemporaryDigits) return false;
  const std::string_view digits = name.substr(name.size() - kTemporaryDigits);
  return name.substr(0, name.size() - kTemporaryDigits).ends_with(kTemporaryMark) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = temporary_name(path);
  {
    Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
    if (file.fd < 0) return system_error(temporary, "create");
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t written = ::write(file.fd, bytes.data() + done, bytes.size() - done);
      if (written < 0) {
        if (errno == EINTR) continue;
        Status status = system_error(temporary, "write");
        ::unlink(temporary.c_str());
        return status;
      }
      done += static_cast<size_t>(written);
    }
    if (fsync(file.fd) != 0) {
      Status status = system_error(temporary, "write");
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = system_error(path, "replace");
    ::unlink(temporary.c_str());
    return status;
  }
  return Status::ok();
}

Result<std::string> read_text_file(const std::string& path, size_t limit_bytes) {
  FW_ASSIGN_OR_RETURN(const std::unique_ptr<RegularFile> opened, open_regular(path));
  if (opened->size_bytes > limit_bytes) {
    return invalid_argument(
        fmt::format("'{}' has {} bytes; at most {} are accepted", path, opened->size_bytes, limit_bytes));
  }
  std::string text(opened->size_bytes, '\0');
  FW_RETURN_IF_ERROR(read_whole(*opened, path, text.data()));
  return text;
}

}  // namespace flywheel
