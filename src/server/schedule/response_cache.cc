// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/response_cache.h"

#define XXH_STATIC_LINKING_ONLY  // the state as a value
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

namespace flywheel::schedule {
namespace {

// What an entry takes besides its bytes: names, shapes, list and table.
constexpr size_t kEntryBytes = 256;
constexpr size_t kOutputBytes = 128;
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }
  void add(const void* data, size_t size) {
    if (size != 0) XXH3_128bits_update(&state_, data, size);
  }
  template <class T>
  void add_value(T value) {
    add(&value, sizeof value);
  }
  // With its length, so that neighbours cannot be cut differently.
  void add_text(std::string_view text) {
    add_value(text.size());
    add(text.data(), text.size());
  }
  ResponseCache::Key key() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.low64, hash.high64};
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

ResponseCache::Key ResponseCache::key_of(uint64_t model, const InferRequest& request) {
  Hasher hasher;
  hasher.add_value(model);
  hasher.add_value(request.inputs.size());
  for (const InputView& input : request.inputs) {
    hasher.add_text(input.name);
    hasher.add_value(static_cast<int>(input.data_type));
    hasher.add_value(input.shape.size());
    for (int64_t dim : input.shape) hasher.add_value(dim);
    hasher.add_value(input.bytes.size());
    hasher.add(input.bytes.data(), input.bytes.size());
  }
  hasher.add_value(request.requested_outputs.size());
  for (const std::string& output : request.requested_outputs) hasher.add_text(output);
  hasher.add_value(request.parameters.size());
  for (const auto& [name, value] : request.parameters) {
    hasher.add_text(name);
    hasher.add_value(value.index());
    if (const auto* text = std::get_if<std::string>(&value)) {
      hasher.add_text(*text);
    } else if (const auto* number = std::get_if<int64_t>(&value)) {
      hasher.add_value(*number);
    } else if (const auto* real = std::get_if<double>(&value)) {
      hasher.add_value(*real);
    } else {
      hasher.add_value(std::get<bool>(value));
    }
  }
  return hasher.key();
}

std::shared_ptr<const ResponseCache::Entry> ResponseCache::find(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++counts_.misses;
    return nullptr;
  }
  ++counts_.hits;
  nodes_.splice(nodes_.begin(), nodes_, found->second);
  return found->second->entry;
}

void ResponseCache::insert(uint64_t model, const Key& key, const InferResponse& response) {
  size_t data_bytes = 0;
  size_t bytes = kEntryBytes;
  for (const OutputTensor& output : response.outputs) {
    data_bytes += aligned(output.bytes.size());
    bytes += kOutputBytes + output.name.size() + output.shape.size() * sizeof(int64_t);
  }
  bytes += data_bytes;
  if (bytes > capacity_bytes_) return;
  auto entry = std::make_shared<Entry>();
  entry->bytes = bytes;
  entry->parameters = response.parameters;
  void* block = ::operator new[](std::max<size_t>(data_bytes, 1), std::align_val_t{kAlignment}, std::nothrow);
  if (block == nullptr) return;
  const std::shared_ptr<std::byte> data(static_cast<std::byte*>(block), [](std::byte* freed) {
    ::operator delete[](freed, std::align_val_t{kAlignment});
  });
  size_t at = 0;
  for (const OutputTensor& output : response.outputs) {
    OutputTensor copy = output;
    if (!output.bytes.empty()) std::memcpy(data.get() + at, output.bytes.data(), output.bytes.size());
    copy.bytes = {data.get() + at, output.bytes.size()};
    copy.owner = data;
    at += aligned(output.bytes.size());
    entry->outputs.push_back(std::move(copy));
  }
  Nodes dropped;  // what only they held goes without the lock
  {
    std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return;
    while (counts_.bytes + bytes > capacity_bytes_) {
      Node& last = nodes_.back();
      counts_.bytes -= last.entry->bytes;
      ++counts_.evictions;
      by_key_.erase(last.key);
      dropped.splice(dropped.begin(), nodes_, std::prev(nodes_.end()));
    }
    nodes_.push_front({key, model, std::move(entry)});
    by_key_[key] = nodes_.begin();
    counts_.bytes += bytes;
    ++counts_.insertions;
  }
}

void ResponseCache::forget(uint64_t model) {
  Nodes dropped;
  std::lock_guard lock(mutex_);
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto next = std::next(it);
    if (it->model == model) {
      counts_.bytes -= it->entry->bytes;
      by_key_.erase(it->key);
      dropped.splice(dropped.begin(), nodes_, it);
    }
    it = next;
  }
}

ResponseCache::Counts ResponseCache::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.entries = nodes_.size();
  return counts;
}

}  // namespace flywheel::schedule
