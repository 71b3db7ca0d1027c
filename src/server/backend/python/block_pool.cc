// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/block_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace flywheel::python {
namespace {

constexpr size_t kSmallestBlockBytes = 64 << 10;
constexpr size_t kMaxBlockBytes = size_t{1} << 40;
constexpr size_t kMaxFreeBytes = 256 << 20;
// Sizes are rounded up to an eighth of a power of two, so that a little more or less finds the same block.
size_t round_size(size_t size) {
  const size_t step = std::max(std::bit_floor(size) / 8, kSmallestBlockBytes);
  return (size + step - 1) / step * step;
}

Result<std::byte*> map(int fd, size_t size, int protection) {
  void* data = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return out_of_memory(fmt::format("cannot map {} bytes of shared memory: {}", size, std::strerror(errno)));
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<std::shared_ptr<Mapping>> Mapping::map_received(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0)
    return corrupt("the Python process sent a block of shared memory that is none");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return corrupt("the Python process sent a block of shared memory that it could shrink");
  const size_t size = static_cast<size_t>(info.st_size);
  FW_ASSIGN_OR_RETURN(std::byte * data, map(fd, size, PROT_READ));
  return std::shared_ptr<Mapping>(new Mapping(data, size));
}

Result<std::shared_ptr<Mapping>> Mapping::create(size_t size_bytes, int& fd) {
  fd = ::memfd_create("flywheel-python", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return internal_error(fmt::format("cannot create shared memory: {}", std::strerror(errno)));
  Status status;
  if (::ftruncate(fd, static_cast<off_t>(size_bytes)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    status = out_of_memory(fmt::format("cannot make {} bytes of shared memory: {}", size_bytes, std::strerror(errno)));
  } else {
    Result<std::byte*> data = map(fd, size_bytes, PROT_READ | PROT_WRITE);
    if (data.is_ok()) return std::shared_ptr<Mapping>(new Mapping(*data, size_bytes));
    status = data.status();
  }
  ::close(fd);
  fd = -1;
  return status;
}

Mapping::~Mapping() { ::munmap(data_, size_); }

Result<SentBlocks::Block> SentBlocks::take(size_t size_bytes) {
  if (size_bytes > kMaxBlockBytes)
    return out_of_memory(fmt::format("{} bytes are more than a message can carry", size_bytes));
  const size_t rounded = round_size(size_bytes);
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    const size_t size = it->second.mapping->size();
    if (it->second.in_use || size < rounded || size / 4 > rounded) continue;
    if (best == blocks_.end() || size < best->second.mapping->size()) best = it;
  }
  if (best != blocks_.end()) {
    best->second.in_use = true;
    free_bytes_ -= best->second.mapping->size();
    return Block{best->first, best->second.mapping->data(), -1};
  }
  int fd = -1;
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> mapping, Mapping::create(rounded, fd));
  const uint32_t id = next_id_++;
  std::byte* data = mapping->data();
  mapped_bytes_ += mapping->size();
  blocks_[id] = {std::move(mapping), true, 0};
  return Block{id, data, fd};
}

void SentBlocks::give_back(uint32_t id, std::vector<uint32_t>& forgotten) {
  const auto block = blocks_.find(id);
  if (block == blocks_.end() || !block->second.in_use) return;
  block->second.in_use = false;
  block->second.last_use = ++uses_;
  free_bytes_ += block->second.mapping->size();
  while (free_bytes_ > kMaxFreeBytes) {
    auto oldest = blocks_.end();
    for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
      if (it->second.in_use) continue;
      if (oldest == blocks_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    forgotten.push_back(oldest->first);
    free_bytes_ -= oldest->second.mapping->size();
    mapped_bytes_ -= oldest->second.mapping->size();
    blocks_.erase(oldest);
  }
}

void SentBlocks::drop(uint32_t id) {
  const auto block = blocks_.find(id);
  if (block == blocks_.end()) return;
  mapped_bytes_ -= block->second.mapping->size();
  if (!block->second.in_use) free_bytes_ -= block->second.mapping->size();
  blocks_.erase(block);
}

}  // namespace flywheel::python
