// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/aligned_buffer.h"

namespace flywheel::lower {
namespace {

// Blocks begin zero to six times this later than they need to, in turn: with equal offsets modulo 4 KB, rows of input
// and output would lie in the same L1 sets.
constexpr uint64_t kSkewBytes = 64 * 5;

uint64_t align_up(uint64_t value) { return (value + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

void note_use(Storage* storage, int step) {
  if (storage == nullptr || storage->space != engine::Space::kArena) return;
  if (storage->first_step < 0) storage->first_step = step;
  storage->last_step = std::max(storage->last_step, step);
}

}  // namespace

Result<uint64_t> plan_memory(LoweredGraph& lowered, const SymbolValues& min, const SymbolValues& max) {
  for (size_t i = 0; i < lowered.steps.size(); ++i) {
    for (const View& view : lowered.steps[i].outputs) note_use(view.storage, static_cast<int>(i));
    for (const View& view : lowered.steps[i].inputs) note_use(view.storage, static_cast<int>(i));
  }
  std::vector<Storage*> order;
  for (const auto& storage : lowered.storages) {
    FW_ASSIGN_OR_RETURN(int64_t elements, storage->elements.evaluate(max));
    elements = std::max(elements, largest_value(storage->elements, min, max).value_or(elements));
    int64_t bytes = 0;
    if (elements < 0 || __builtin_mul_overflow(elements, static_cast<int64_t>(dtype_size(storage->dtype)), &bytes) ||
        bytes > int64_t{1} << 45) {
      return invalid_argument(
          fmt::format("an intermediate tensor could have {} elements in the profile: lower its maximum", elements));
    }
    storage->size_bytes = static_cast<uint64_t>(bytes);
    if (storage->space == engine::Space::kArena && storage->first_step >= 0) order.push_back(storage.get());
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Storage* a, const Storage* b) { return a->size_bytes > b->size_bytes; });

  std::vector<Storage*> placed;  // by offset
  uint64_t arena_bytes = 0;
  int index = 0;
  for (Storage* storage : order) {
    const uint64_t skew = kSkewBytes * static_cast<uint64_t>(index++ % 7);
    const uint64_t size = align_up(storage->size_bytes) + skew;
    uint64_t candidate = 0;
    for (const Storage* other : placed) {
      if (other->last_step < storage->first_step || storage->last_step < other->first_step) continue;
      if (candidate + size <= other->offset) break;
      candidate = std::max(candidate, align_up(other->offset + other->size_bytes));
    }
    storage->offset = candidate + skew;
    arena_bytes = std::max(arena_bytes, storage->offset + align_up(storage->size_bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), storage,
                                   [](const Storage* a, const Storage* b) { return a->offset < b->offset; }),
                  storage);
  }
  return arena_bytes;
}

}  // namespace flywheel::lower
