// SPDX-License-Identifier: Apache-2.0
#include "flywheel/buffer.h"

#include <utility>

#include "base/aligned_buffer.h"

namespace flywheel {

struct Buffer::Block {
  AlignedBuffer memory;
};

Result<Buffer> Buffer::allocate(size_t size_bytes) {
  auto block = std::make_unique<Block>();
  FW_ASSIGN_OR_RETURN(block->memory, AlignedBuffer::allocate(size_bytes, "a tensor"));
  return Buffer(std::move(block));
}

Buffer::Buffer(std::unique_ptr<Block> block)
    : block_(std::move(block)), data_(block_->memory.data()), size_bytes_(block_->memory.size_bytes()) {}

Buffer::Buffer(Buffer&& other) noexcept
    : block_(std::move(other.block_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  block_ = std::move(other.block_);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

Buffer::~Buffer() = default;

}  // namespace flywheel
