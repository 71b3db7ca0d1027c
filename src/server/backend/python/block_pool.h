// SPDX-License-Identifier: Apache-2.0
// Shared memory between the server and one Python process: blocks, each a memory file of its own that its maker writes
// and the other side reads. Blocks are used again, so that their pages stay mapped. Descriptors are needed only to hand
// a block over. Owned by the channel to the process; everything ends with it and with the last tensor that lies in it.
// Thread safety: SentBlocks is guarded by the channel; a Mapping is immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::python {

class Mapping {
 public:
  // Of the whole file. A file that its maker could shrink is refused: reading it would end the server.
  static Result<std::shared_ptr<Mapping>> map_received(int fd);
  // A new file, and its descriptor, which the caller closes.
  static Result<std::shared_ptr<Mapping>> create(size_t size_bytes, int& fd);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  size_t size_;
};

// The server's blocks.
class SentBlocks {
 public:
  struct Block {
    uint32_t id = 0;
    std::byte* data = nullptr;
    int new_fd = -1;  // to send and close, when the process does not have the block yet
  };
  Result<Block> take(size_t size_bytes);
  // The process needs it no more. Unknown ids are ignored. Ids of blocks that are given up for it are appended.
  void give_back(uint32_t id, std::vector<uint32_t>& forgotten);
  // As never sent.
  void drop(uint32_t id);
  size_t mapped_bytes() const { return mapped_bytes_; }

 private:
  struct Kept {
    std::shared_ptr<Mapping> mapping;
    bool in_use = true;
    uint64_t last_use = 0;
  };
  std::map<uint32_t, Kept> blocks_;
  uint32_t next_id_ = 1;
  uint64_t uses_ = 0;
  size_t free_bytes_ = 0;
  size_t mapped_bytes_ = 0;
};

}  // namespace flywheel::python
