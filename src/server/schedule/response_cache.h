// SPDX-License-Identifier: Apache-2.0
// Answers of earlier requests, by what was asked: one cache for all models and protocols of a server, limited in bytes,
// the entry that was used longest ago goes first. Owned by the server; models that allow it use it through a
// CachingRunner. Any thread; lookups hold the lock for a hash table's work only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "server/schedule/request.h"

namespace flywheel::schedule {

class ResponseCache {
 public:
  // 128 bits of hash: that two requests of one server share them by chance is not to be expected in its lifetime.
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    std::vector<OutputTensor> outputs;  // keep their bytes alive
    Parameters parameters;
    size_t bytes = 0;
  };
  struct Counts {
    uint64_t hits = 0, misses = 0, insertions = 0, evictions = 0;
    size_t entries = 0, bytes = 0;
  };

  explicit ResponseCache(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // `model`: a number of the loaded version's own, so that what a model answered before it was replaced is not found.
  static Key key_of(uint64_t model, const InferRequest& request);
  std::shared_ptr<const Entry> find(const Key& key);
  // Copies the response, in one piece. Not one that is larger than the whole cache.
  void insert(uint64_t model, const Key& key, const InferResponse& response);
  // Drops what the model answered.
  void forget(uint64_t model);
  Counts counts() const;
  size_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const { return static_cast<size_t>(key.low); }
  };
  struct Node {
    Key key;
    uint64_t model = 0;
    std::shared_ptr<const Entry> entry;
  };
  using Nodes = std::list<Node>;

  const size_t capacity_bytes_;
  mutable std::mutex mutex_;
  Nodes nodes_;  // the last used first
  std::unordered_map<Key, Nodes::iterator, KeyHash> by_key_;
  Counts counts_;
};

}  // namespace flywheel::schedule
