// SPDX-License-Identifier: Apache-2.0
// A request's body in one contiguous block. The connection allocates it once the head is known and receives straight
// into it; the protocol above hands parts of it to the engine without copying, sharing its ownership. The tensors that
// follow a JSON part of known length start at a 64-byte boundary. A few bytes past the end may be read (the JSON parser
// does), and all bodies together stay under a budget, of which a body takes what has arrived of it: a client that only
// announces a large body takes nothing from the others. Answers have such a budget, too.
// Thread safety: one owner at a time; the budget any thread; the shared bytes are read by any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace flywheel::http {

// Bytes that all bodies, or all unsent answers, of a server may take.
class BodyBudget {
 public:
  explicit BodyBudget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  bool take(size_t bytes);
  void give_back(size_t bytes) { used_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed); }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
};

// Bytes taken from a budget, given back at its end: what an answer takes until it is sent.
class BudgetShare {
 public:
  BudgetShare() = default;
  ~BudgetShare() { give_back(); }
  BudgetShare(BudgetShare&& other) noexcept { add(std::move(other)); }
  BudgetShare& operator=(BudgetShare&& other) noexcept;

  // False: beyond the budget; then nothing is taken. REQUIRES: each time of the same budget.
  bool take(const std::shared_ptr<BodyBudget>& budget, size_t bytes);
  // REQUIRES: of the same budget.
  void add(BudgetShare&& other) noexcept;

 private:
  void give_back() noexcept;
  std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

class Body {
 public:
  static constexpr size_t kTailBytes = 64;  // readable past the end; their value is undefined

  Body() = default;
  ~Body() = default;
  Body(Body&&) = default;
  Body& operator=(Body&&) = default;

  // Room for `capacity` bytes, whose byte `aligned_at` lies on a 64-byte boundary. False: the system has no such room.
  bool reserve(size_t capacity, size_t aligned_at, const std::shared_ptr<BodyBudget>& budget);
  // Grows geometrically. False: beyond the budget, or as above.
  bool append(std::string_view bytes);

  size_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // The unused room, for receiving into; commit() takes its first bytes as part of the body. False: beyond the budget.
  std::span<std::byte> room() { return {data_ + size_, capacity_ - size_}; }
  [[nodiscard]] bool commit(size_t count);
  const std::shared_ptr<BodyBudget>& budget() const { return budget_; }
  // Keeps the bytes alive.
  std::shared_ptr<const void> share() const { return block_; }

 private:
  struct Block;  // the memory, and what it has taken from the budget
  std::shared_ptr<Block> block_;
  std::shared_ptr<BodyBudget> budget_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t aligned_at_ = 0;
};

}  // namespace flywheel::http
