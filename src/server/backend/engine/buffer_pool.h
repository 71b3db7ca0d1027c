// SPDX-License-Identifier: Apache-2.0
// Memory for outputs, which leave with the responses and come back when the last response of a batch is sent: large
// blocks are kept for the next batch, since taking them from the system anew costs a page fault for every 4 KB.
// Owned by the served model and by the blocks that are out. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace flywheel::engines {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  explicit BufferPool(size_t max_kept_blocks) : max_kept_blocks_(max_kept_blocks) {}
  ~BufferPool();

  // At least `size_bytes`, 64-byte aligned, of undefined content; null when the system has none.
  std::shared_ptr<std::byte> take(size_t size_bytes);

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };
  void give_back(Block block);

  const size_t max_kept_blocks_;
  std::mutex mutex_;
  std::vector<Block> kept_;
};

}  // namespace flywheel::engines
