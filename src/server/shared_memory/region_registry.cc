// SPDX-License-Identifier: Apache-2.0
#include "server/shared_memory/region_registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>

namespace flywheel::shared_memory {
namespace {

// Objects of these names are servers' own.
constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";
constexpr size_t kMaxNameBytes = 1024;
constexpr uint64_t kLargeBytes = 1 << 20;

// Calls `transfer(fd, data, size, offset)` until all is moved. 0: all was; kShortened: the object ended before.
constexpr int kShortened = -1;
template <class Pointer, class Transfer>
int move_all(int fd, Pointer data, size_t size, uint64_t offset, Transfer transfer) {
  while (size > 0) {
    const ssize_t moved = transfer(fd, data, std::min<size_t>(size, 1 << 30), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return kShortened;
    data += moved;
    size -= static_cast<size_t>(moved);
    offset += static_cast<uint64_t>(moved);
  }
  return 0;
}

std::string problem_text(int problem) {
  return problem == kShortened ? "the client shortened it after it was registered"
                               : std::generic_category().message(problem);
}

}  // namespace

class Region {
 public:
  Region(int fd, RegionInfo about) : fd_(fd), about_(std::move(about)) {}
  ~Region() { ::close(fd_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const RegionInfo& about() const { return about_; }

  Status check_size(uint64_t end) const {
    struct stat file {};
    if (::fstat(fd_, &file) != 0) return fault(errno);
    return file.st_size < 0 || static_cast<uint64_t>(file.st_size) < end ? fault(kShortened) : Status();
  }
  Status read(uint64_t at, std::span<std::byte> out) const {
    const int problem = move_all(fd_, out.data(), out.size(), at, ::pread);
    return problem == 0 ? Status() : fault(problem);
  }
  Status write(uint64_t at, std::span<const std::byte> bytes) const {
    // Writing behind the end would make the object longer, which no mapping of the client's would see.
    FW_RETURN_IF_ERROR(check_size(at + bytes.size()));
    const int problem = move_all(fd_, bytes.data(), bytes.size(), at, ::pwrite);
    return problem == 0 ? Status() : fault(problem);
  }

 private:
  Status fault(int problem) const {
    return invalid_argument(
        fmt::format("Unable to use shared memory region: '{}': {}", about_.name, problem_text(problem)));
  }

  const int fd_;
  const RegionInfo about_;
};

struct RegionRegistry::Budget {
  std::atomic<int64_t> used{0};
};

Status OutputPlace::write(std::span<const std::byte> bytes) const {
  if (bytes.size() > byte_size_) {
    return invalid_argument(
        fmt::format("shared memory size specified with the request for output ({} bytes) should be at least {} bytes "
                    "to hold the results",
                    byte_size_, bytes.size()));
  }
  return region_->write(offset_, bytes);
}

RegionRegistry::RegionRegistry(RegistryOptions options) : options_(options), budget_(std::make_shared<Budget>()) {}
RegionRegistry::~RegionRegistry() = default;

Status RegionRegistry::check_enabled() const {
  if (options_.enabled) return {};
  return unsupported("Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

Status RegionRegistry::register_region(std::string_view name, const std::string& key, uint64_t offset,
                                       uint64_t byte_size) {
  FW_RETURN_IF_ERROR(check_enabled());
  if (name.empty()) return invalid_argument("'region name' is necessary to register system shared memory region");
  auto refuse = [&](std::string_view why) {
    return invalid_argument(fmt::format("failed to register shared memory region '{}': {}", name, why));
  };
  if (name.size() > kMaxNameBytes || key.size() > kMaxNameBytes) return refuse("its name or key is too long");
  if (key.substr(key.starts_with('/') ? 1 : 0).starts_with(kReservedPrefix)) {
    return invalid_argument(
        fmt::format("cannot register shared memory region '{}' with key '{}' as the key contains the reserved prefix "
                    "'{}'",
                    name, key, kReservedPrefix));
  }
  if (byte_size == 0) return refuse("byte_size must be larger than 0");
  // The system's functions end a name at a zero byte, and a slash would lead out of the folder of such objects.
  if (key.find('\0') != std::string::npos) return refuse("invalid args");
  std::lock_guard lock(mutex_);
  if (regions_.find(name) != regions_.end()) {
    return {Code::kAlreadyExists, fmt::format("shared memory region '{}' already in manager", name)};
  }
  if (regions_.size() >= options_.max_regions) {
    return unavailable(
        fmt::format("failed to register shared memory region '{}': there are {} regions already; "
                    "unregister some",
                    name, regions_.size()));
  }
  // Not waiting, should the name be that of something else than memory.
  const int fd = ::shm_open(key.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return internal_error(fmt::format("Unable to open shared memory region: '{}'", key));
  auto region = std::make_shared<const Region>(fd, RegionInfo{std::string(name), key, offset, byte_size});
  struct stat file {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size < 0) {
    return internal_error(fmt::format("Invalid shared memory region: '{}'", key));
  }
  const auto size = static_cast<uint64_t>(file.st_size);
  if (offset > size || byte_size > size - offset) return refuse("invalid args");
  regions_.emplace(std::string(name), std::move(region));
  if (byte_size >= kLargeBytes) has_large_regions_.store(true, std::memory_order_relaxed);
  return {};
}

Result<std::vector<RegionInfo>> RegionRegistry::describe(std::string_view name) const {
  std::lock_guard lock(mutex_);
  std::vector<RegionInfo> result;
  if (name.empty()) {
    for (const auto& [each, region] : regions_) result.push_back(region->about());
    return result;
  }
  const auto found = regions_.find(name);
  if (found == regions_.end()) return not_found(fmt::format("Unable to find system shared memory region: '{}'", name));
  result.push_back(found->second->about());
  return result;
}

Status RegionRegistry::unregister(std::string_view name) {
  FW_RETURN_IF_ERROR(check_enabled());
  decltype(regions_) gone;  // files are closed after the lock is released
  std::lock_guard lock(mutex_);
  if (name.empty()) {
    gone.swap(regions_);
  } else if (const auto found = regions_.find(name); found != regions_.end()) {
    gone.insert(regions_.extract(found));
  }
  return {};
}

Result<std::shared_ptr<const Region>> RegionRegistry::lookup(std::string_view name, uint64_t offset,
                                                             uint64_t byte_size) const {
  FW_RETURN_IF_ERROR(check_enabled());
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) return not_found(fmt::format("Unable to find shared memory region: '{}'", name));
  const uint64_t size = found->second->about().byte_size;
  if (offset >= size) return invalid_argument(fmt::format("Invalid offset for shared memory region: '{}'", name));
  if (byte_size > size - offset) {
    return invalid_argument(fmt::format("Invalid offset + byte size for shared memory region: '{}'", name));
  }
  return found->second;
}

Result<InputBytes> RegionRegistry::read(std::string_view name, uint64_t offset, uint64_t byte_size) const {
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<const Region> region, lookup(name, offset, byte_size));
  const uint64_t at = region->about().offset + offset;
  // Before memory is taken for it: the region may be much shorter than it was.
  FW_RETURN_IF_ERROR(region->check_size(at + byte_size));
  struct Copy {
    explicit Copy(std::shared_ptr<Budget> from) : budget(std::move(from)) {}
    ~Copy() { budget->used.fetch_sub(taken, std::memory_order_relaxed); }
    const std::shared_ptr<Budget> budget;
    int64_t taken = 0;
    std::unique_ptr<std::byte[]> bytes;
  };
  auto copy = std::make_shared<Copy>(budget_);
  const int64_t wanted = static_cast<int64_t>(std::min<uint64_t>(byte_size, std::numeric_limits<int64_t>::max() / 2));
  copy->taken = wanted;
  if (budget_->used.fetch_add(wanted, std::memory_order_relaxed) + wanted <= options_.max_input_bytes) {
    copy->bytes.reset(new (std::nothrow) std::byte[std::max<size_t>(byte_size, 1)]);
  }
  if (copy->bytes == nullptr) {
    return unavailable(
        fmt::format("no memory for {} bytes of shared memory region '{}': the inputs of all requests in "
                    "hand may take {} bytes; retry later",
                    byte_size, name, options_.max_input_bytes));
  }
  const std::span<std::byte> bytes(copy->bytes.get(), byte_size);
  FW_RETURN_IF_ERROR(region->read(at, bytes));
  return InputBytes{bytes, std::move(copy)};
}

Result<OutputPlace> RegionRegistry::find(std::string_view name, uint64_t offset, uint64_t byte_size) const {
  OutputPlace place;
  FW_ASSIGN_OR_RETURN(place.region_, lookup(name, offset, byte_size));
  place.offset_ = place.region_->about().offset + offset;
  place.byte_size_ = byte_size;
  return place;
}

Status cuda_register_error(std::string_view name) {
  if (name.empty()) {
    return invalid_argument("'region name' is necessary to register cuda shared memory region");
  }
  return invalid_argument(fmt::format("failed to register CUDA shared memory region: '{}', GPUs not supported", name));
}

Status cuda_status_error(std::string_view name) {
  if (name.empty()) return {};
  return not_found(fmt::format("Unable to find cuda shared memory region: '{}'", name));
}

}  // namespace flywheel::shared_memory
