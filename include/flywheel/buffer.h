// SPDX-License-Identifier: Apache-2.0
// Memory for a context's inputs and outputs. Any memory will do; this is aligned for the kernels, and huge pages back
// what is large. Owned by the caller, who keeps it until the run that uses it has ended. Threads: as plain memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "flywheel/status.h"

namespace flywheel {

class Buffer {
 public:
  // Zeroed. kOutOfMemory, with the size, when the system has none: use smaller shapes.
  static Result<Buffer> allocate(size_t size_bytes);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // The bytes as elements of T. REQUIRES: T is the tensor's element type.
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_bytes_ / sizeof(T)};
  }

 private:
  struct Block;
  explicit Buffer(std::unique_ptr<Block> block);
  std::unique_ptr<Block> block_;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace flywheel
