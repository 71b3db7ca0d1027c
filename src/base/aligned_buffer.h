// SPDX-License-Identifier: Apache-2.0
// An owned block of memory for tensors: arenas, packed weights, staging buffers. 64-byte aligned; blocks of 2 MB and
// more ask the kernel for huge pages, since NHWC strides of several KB miss the TLB otherwise. Not thread-safe to move;
// the bytes are the owner's business.
#pragma once

#include <cstddef>
#include <span>

#include "flywheel/status.h"

namespace flywheel {

inline constexpr size_t kBufferAlignment = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  // Zeroed. kOutOfMemory with the size when the system has none; `what` names the use in the message.
  static Result<AlignedBuffer> allocate(size_t size_bytes, const char* what);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() { return {data_, size_bytes_}; }
  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  void release();
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
};

}  // namespace flywheel
