// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/buffer_pool.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace flywheel::engines {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestKeptBytes = 64 << 10;  // the allocator keeps smaller ones itself

}  // namespace

BufferPool::~BufferPool() {
  for (const Block& block : kept_) std::free(block.data);
}

std::shared_ptr<std::byte> BufferPool::take(size_t size_bytes) {
  if (size_bytes > std::numeric_limits<size_t>::max() - kAlignment) return nullptr;
  const size_t rounded = std::max(kAlignment, (size_bytes + kAlignment - 1) / kAlignment * kAlignment);
  Block block;
  if (rounded >= kSmallestKeptBytes) {
    std::lock_guard lock(mutex_);
    // Not one that is far too large: it would be missing where it is needed.
    auto fits = std::find_if(kept_.begin(), kept_.end(), [&](const Block& kept) {
      return kept.size_bytes >= rounded && kept.size_bytes / 4 <= rounded;
    });
    if (fits != kept_.end()) {
      block = *fits;
      kept_.erase(fits);
    }
  }
  if (block.data == nullptr) {
    block = {static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)), rounded};
    if (block.data == nullptr) return nullptr;
  }
  if (rounded < kSmallestKeptBytes) return {block.data, [](std::byte* data) { std::free(data); }};
  return {block.data, [pool = shared_from_this(), block](std::byte*) { pool->give_back(block); }};
}

void BufferPool::give_back(Block block) {
  {
    std::lock_guard lock(mutex_);
    if (kept_.size() < max_kept_blocks_) {
      kept_.push_back(block);
      return;
    }
    // The sizes asked for change: the oldest one goes.
    if (!kept_.empty()) {
      std::swap(block, kept_.front());
      std::rotate(kept_.begin(), kept_.begin() + 1, kept_.end());
    }
  }
  std::free(block.data);
}

}  // namespace flywheel::engines
