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
#include <utility>

namespace flywheel {
namespace {

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

Result<MappedFile> MappedFile::open(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error(path, "open");
  struct stat info {};
  if (fstat(file.fd, &info) != 0) return system_error(path, "read");
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("'{}' is not a regular file", path));
  MappedFile mapped;
  if (info.st_size == 0) return mapped;
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return system_error(path, "map");
  mapped.data_ = data;
  mapped.size_bytes_ = static_cast<size_t>(info.st_size);
  return mapped;
}

Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, getpid());
  {
    Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
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
  FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > limit_bytes) {
    return invalid_argument(
        fmt::format("'{}' has {} bytes; at most {} are accepted", path, file.bytes().size(), limit_bytes));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace flywheel
