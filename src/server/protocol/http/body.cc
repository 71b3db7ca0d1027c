// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/body.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace flywheel::http {
namespace {

constexpr size_t kAlignment = 64;
// Receiving into fresh memory costs a page fault for every 4 KB otherwise.
constexpr size_t kHugePageBytes = 2 << 20;

// A body takes from its budget in steps: as it arrives, yet not for every packet.
constexpr size_t kStepBytes = 64 << 10;

}  // namespace

struct Body::Block {
  ~Block() {
    std::free(memory);
    budget->give_back(charged_bytes);
  }
  void* memory = nullptr;
  std::shared_ptr<BodyBudget> budget;
  size_t charged_bytes = 0;
  size_t step_bytes = kStepBytes;  // of a huge page, the first byte takes all
};

bool BodyBudget::take(size_t bytes) {
  if (bytes > static_cast<size_t>(limit_bytes_)) return false;
  const int64_t count = static_cast<int64_t>(bytes);
  if (used_bytes_.fetch_add(count, std::memory_order_relaxed) + count <= limit_bytes_) return true;
  used_bytes_.fetch_sub(count, std::memory_order_relaxed);
  return false;
}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  add(std::move(other));
  return *this;
}

bool BudgetShare::take(const std::shared_ptr<BodyBudget>& budget, size_t bytes) {
  if (!budget->take(bytes)) return false;
  budget_ = budget;
  bytes_ += bytes;
  return true;
}

void BudgetShare::add(BudgetShare&& other) noexcept {
  if (other.budget_ == nullptr) return;
  budget_ = std::move(other.budget_);
  bytes_ += std::exchange(other.bytes_, 0);
}

void BudgetShare::give_back() noexcept {
  if (bytes_ > 0) budget_->give_back(std::exchange(bytes_, 0));
}

bool Body::reserve(size_t capacity, size_t aligned_at, const std::shared_ptr<BodyBudget>& budget) {
  const size_t offset = (kAlignment - aligned_at % kAlignment) % kAlignment;
  constexpr size_t kOverhead = 2 * kAlignment + kTailBytes;
  if (capacity > std::numeric_limits<size_t>::max() / 2 - kOverhead) return false;
  const size_t total = (offset + capacity + kTailBytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool huge = total >= 2 * kHugePageBytes;
  void* memory = std::aligned_alloc(huge ? kHugePageBytes : kAlignment,
                                    huge ? (total + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes : total);
  if (memory == nullptr) return false;
  if (huge) madvise(memory, total, MADV_HUGEPAGE);  // a wish; failing it changes nothing
  auto block = std::make_shared<Block>();
  block->memory = memory;
  block->budget = budget;
  if (huge) block->step_bytes = kHugePageBytes;
  std::byte* data = static_cast<std::byte*>(memory) + offset;
  if (size_ > 0) {
    if (!budget->take(size_)) return false;
    block->charged_bytes = size_;
    std::memcpy(data, data_, size_);
  }
  block_ = std::move(block);
  data_ = data;
  capacity_ = capacity;
  budget_ = budget;
  aligned_at_ = aligned_at;
  return true;
}

bool Body::commit(size_t count) {
  if (count == 0) return true;  // of a body without a block, too
  size_ += count;
  if (size_ <= block_->charged_bytes) return true;
  const size_t wanted =
      std::min(capacity_ - block_->charged_bytes, std::max(size_ - block_->charged_bytes, block_->step_bytes));
  if (!block_->budget->take(wanted)) return false;
  block_->charged_bytes += wanted;
  return true;
}

bool Body::append(std::string_view bytes) {
  if (bytes.size() > capacity_ - size_) {
    const std::shared_ptr<Block> keep_alive = block_;  // reserve copies from it
    const size_t wanted = std::max(size_ + bytes.size(), capacity_ * 2);
    if (!reserve(wanted, aligned_at_, budget_)) return false;
  }
  std::memcpy(data_ + size_, bytes.data(), bytes.size());
  return commit(bytes.size());
}

}  // namespace flywheel::http
