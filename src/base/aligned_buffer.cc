// SPDX-License-Identifier: Apache-2.0
#include "base/aligned_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace flywheel {

namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;
}  // namespace

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  }
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::allocate(size_t size_bytes, const char* what) {
  AlignedBuffer buffer;
  if (size_bytes == 0) return buffer;
  auto refused = [&] {
    return out_of_memory(fmt::format("{} needs {} bytes, which the system did not give", what, size_bytes));
  };
  if (size_bytes > std::numeric_limits<size_t>::max() / 2) return refused();
  const bool huge = size_bytes >= kHugePageBytes;
  const size_t granule = huge ? kHugePageBytes : kPageBytes;
  const size_t rounded = (size_bytes + granule - 1) / granule * granule;
  const size_t mapping_bytes = huge ? rounded + kHugePageBytes : rounded;
  void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return refused();
  auto start = reinterpret_cast<uintptr_t>(mapping);
  start = (start + granule - 1) / granule * granule;
  if (huge) madvise(reinterpret_cast<void*>(start), rounded, MADV_HUGEPAGE);
  buffer.data_ = reinterpret_cast<std::byte*>(start);
  buffer.size_bytes_ = size_bytes;
  buffer.mapping_ = mapping;
  buffer.mapping_bytes_ = mapping_bytes;
  return buffer;
}

void AlignedBuffer::release() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
  data_ = nullptr;
}

}  // namespace flywheel
