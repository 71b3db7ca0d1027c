// SPDX-License-Identifier: Apache-2.0
// The shared memory that clients registered: POSIX objects by key, so that tensors of a client on the same machine need
// not travel through a socket. The server owns one; HTTP and gRPC register regions, read inputs and write outputs.
//
// The client keeps its mapping and may shorten the object or change its bytes at any moment. So the server never maps
// it: reading a truncated mapping would end the process (SIGBUS), and bytes that were validated could change before
// they are used. Inputs are copied out with one read, outputs written with one write, and either may fail.
//
// Ownership: what read() and find() return keeps the object open, also after it was unregistered. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::shared_memory {

struct RegionInfo {
  std::string name;
  std::string key;
  uint64_t offset = 0;  // where in the object the region begins
  uint64_t byte_size = 0;
};

struct RegistryOptions {
  bool enabled = true;  // false: everything is refused, with the flag that allows it
  size_t max_regions = 4096;
  // Of all inputs that were read and whose requests are not yet answered.
  int64_t max_input_bytes = int64_t{4} << 30;
};

// A client's input, as it was when it was read.
struct InputBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
};

class Region;

// Where an output is to go.
class OutputPlace {
 public:
  OutputPlace() = default;
  uint64_t byte_size() const { return byte_size_; }
  // Refuses more than byte_size(). May block for as long as the system takes to copy.
  Status write(std::span<const std::byte> bytes) const;
  explicit operator bool() const { return region_ != nullptr; }

 private:
  friend class RegionRegistry;
  std::shared_ptr<const Region> region_;
  uint64_t offset_ = 0;  // in the object
  uint64_t byte_size_ = 0;
};

class RegionRegistry {
 public:
  explicit RegionRegistry(RegistryOptions options = {});
  ~RegionRegistry();
  RegionRegistry(const RegionRegistry&) = delete;
  RegionRegistry& operator=(const RegionRegistry&) = delete;

  // OK, or why clients may not use shared memory at all. The functions below ask for themselves.
  Status check_enabled() const;
  // Whether copying from some region may take long (a millisecond): it is or was 1 MiB or more.
  bool has_large_regions() const { return has_large_regions_.load(std::memory_order_relaxed); }
  Status register_region(std::string_view name, const std::string& key, uint64_t offset, uint64_t byte_size);
  // An empty name: all, ordered by name.
  Result<std::vector<RegionInfo>> describe(std::string_view name) const;
  // An empty name: all. A region that is not there is no error, as in Triton. Requests in flight keep theirs.
  Status unregister(std::string_view name);

  // `offset` counts from the region's beginning.
  Result<InputBytes> read(std::string_view name, uint64_t offset, uint64_t byte_size) const;
  Result<OutputPlace> find(std::string_view name, uint64_t offset, uint64_t byte_size) const;

 private:
  struct Budget;
  Result<std::shared_ptr<const Region>> lookup(std::string_view name, uint64_t offset, uint64_t byte_size) const;

  const RegistryOptions options_;
  const std::shared_ptr<Budget> budget_;
  std::atomic<bool> has_large_regions_{false};
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Region>, std::less<>> regions_;
};

// What a build without CUDA says to each of the calls about CUDA's shared memory. An empty name: all regions.
Status cuda_register_error(std::string_view name);
// OK: there is none to unregister, and nothing to show when no name is given.
Status cuda_status_error(std::string_view name);

}  // namespace flywheel::shared_memory
