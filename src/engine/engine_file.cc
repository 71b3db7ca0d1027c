// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "base/aligned_buffer.h"
#include "engine/plan_table.h"

namespace flywheel::engine {
namespace {

constexpr char kMagic[8] = {'F', 'L', 'Y', 'W', 'H', 'E', 'E', 'L'};
constexpr uint64_t kHeaderBytes = 128;
constexpr uint64_t kSectionAlignment = 4096;  // weights begin on a page, so that mapping aligns them
constexpr uint32_t kCpuDevice = 1;

// The first bytes of a file, little-endian, no padding between fields.
struct RawHeader {
  char magic[8];
  uint32_t format_version, library_version;
  uint32_t device, isa;
  uint64_t model_hash, file_bytes;
  uint64_t table_offset, table_bytes, table_checksum;
  uint64_t weights_offset, weights_bytes, weights_checksum;
  uint64_t reserved[4];
  uint64_t header_checksum;  // of all bytes before it
};
static_assert(sizeof(RawHeader) == kHeaderBytes);

uint64_t checksum(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t header_checksum(const RawHeader& raw) { return checksum(&raw, offsetof(RawHeader, header_checksum)); }

Status check_section(const char* name, uint64_t offset, uint64_t bytes, uint64_t file_bytes) {
  if (offset < kHeaderBytes || offset > file_bytes || bytes > file_bytes - offset || offset % kBufferAlignment != 0) {
    return corrupt(fmt::format("damaged engine: its {} section lies outside the file; rebuild it", name));
  }
  return Status::ok();
}

// Everything but the weights' checksum.
Result<EngineFile> decode(std::span<const std::byte> bytes, const Machine& machine) {
  EngineFile engine;
  FW_ASSIGN_OR_RETURN(engine.header, read_header(bytes));
  const Header& header = engine.header;
  FW_RETURN_IF_ERROR(check(header, machine));
  if (header.file_bytes != bytes.size()) {
    return corrupt(fmt::format("truncated engine: the file has {} bytes, its header says {}; copy or build it again",
                               bytes.size(), header.file_bytes));
  }
  FW_RETURN_IF_ERROR(check_section("table", header.table_offset, header.table_bytes, bytes.size()));
  FW_RETURN_IF_ERROR(check_section("weights", header.weights_offset, header.weights_bytes, bytes.size()));
  const auto table = bytes.subspan(header.table_offset, header.table_bytes);
  engine.weights = bytes.subspan(header.weights_offset, header.weights_bytes);
  if (checksum(table.data(), table.size()) != header.table_checksum) {
    return corrupt("damaged engine: the checksum of its table does not match; copy or build it again");
  }
  FW_ASSIGN_OR_RETURN(engine.plan, decode_plan(table));
  engine.plan.model_hash = header.model_hash;
  engine.plan.isa = header.isa;
  FW_RETURN_IF_ERROR(check_plan(engine.plan, engine.weights.size()));
  return engine;
}

}  // namespace

Result<Header> read_header(std::span<const std::byte> file) {
  RawHeader raw;
  if (file.size() < sizeof raw.magic || std::memcmp(file.data(), kMagic, sizeof kMagic) != 0) {
    return corrupt(
        "not a Flywheel engine: the file does not begin with its magic; `flywheel build` makes engines from ONNX "
        "models");
  }
  if (file.size() < kHeaderBytes) {
    return corrupt(
        fmt::format("truncated engine: {} bytes are fewer than its header has; copy or build it again", file.size()));
  }
  std::memcpy(&raw, file.data(), kHeaderBytes);
  // The version comes first: another version may place its checksum elsewhere.
  if (raw.format_version != kFormatVersion) {
    return incompatible(fmt::format("the engine has format version {}, this Flywheel reads version {}: rebuild it",
                                    raw.format_version, kFormatVersion));
  }
  if (header_checksum(raw) != raw.header_checksum) {
    return corrupt("damaged engine: the checksum of its header does not match; copy or build it again");
  }
  if (raw.isa > static_cast<uint32_t>(Isa::kAvx512)) {
    return incompatible(fmt::format(
        "the engine needs instruction set number {}, which this Flywheel does not know: rebuild it", raw.isa));
  }
  Header header;
  header.format_version = raw.format_version;
  header.library_version = raw.library_version;
  header.device = raw.device;
  header.isa = static_cast<Isa>(raw.isa);
  header.model_hash = raw.model_hash;
  header.file_bytes = raw.file_bytes;
  header.table_offset = raw.table_offset;
  header.table_bytes = raw.table_bytes;
  header.table_checksum = raw.table_checksum;
  header.weights_offset = raw.weights_offset;
  header.weights_bytes = raw.weights_bytes;
  header.weights_checksum = raw.weights_checksum;
  return header;
}

Status check(const Header& header, const Machine& machine) {
  if (header.library_version != kKernelLibraryVersion) {
    return incompatible(
        fmt::format("the engine was built for kernel library version {}, this Flywheel has version {}: rebuild it",
                    header.library_version, kKernelLibraryVersion));
  }
  if (header.device != kCpuDevice) {
    return incompatible(fmt::format(
        "the engine was built for device kind {}, but this Flywheel runs on the CPU (kind {}): rebuild it with "
        "--device cpu",
        header.device, kCpuDevice));
  }
  if (!machine.has(header.isa)) {
    return incompatible(fmt::format("the engine needs {}, but {} has {} at most{}: rebuild it here, or with --isa {}",
                                    isa_name(header.isa), machine.cpu_name, isa_name(machine.isa),
                                    machine.isa < machine.hardware_isa ? " (FLYWHEEL_ISA is set)" : "",
                                    isa_name(machine.isa)));
  }
  return Status::ok();
}

Result<EngineFile> read_engine(const std::string& path, const Machine& machine, FileAccess access) {
  FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path, access));
  Result<EngineFile> engine = decode(file.bytes(), machine);
  if (!engine.is_ok()) return engine.status().with_context(fmt::format("'{}'", path));
  engine->file = std::move(file);
  return engine;
}

Status check_weights(const EngineFile& engine) {
  if (checksum(engine.weights.data(), engine.weights.size()) == engine.header.weights_checksum) return Status::ok();
  return corrupt("damaged engine: the checksum of its weights does not match; copy or build it again");
}

Result<EngineFile> read_engine_bytes(std::span<const std::byte> bytes, const Machine& machine) {
  FW_ASSIGN_OR_RETURN(EngineFile engine, decode(bytes, machine));
  FW_RETURN_IF_ERROR(check_weights(engine));
  return engine;
}

std::vector<std::byte> encode_engine(const Plan& plan, std::span<const std::byte> weights) {
  const std::vector<std::byte> table = encode_plan(plan);
  const uint64_t weights_offset =
      (kHeaderBytes + table.size() + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
  RawHeader raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.format_version = kFormatVersion;
  raw.library_version = kKernelLibraryVersion;
  raw.device = kCpuDevice;
  raw.isa = static_cast<uint32_t>(plan.isa);
  raw.model_hash = plan.model_hash;
  raw.file_bytes = weights_offset + weights.size();
  raw.table_offset = kHeaderBytes;
  raw.table_bytes = table.size();
  raw.table_checksum = checksum(table.data(), table.size());
  raw.weights_offset = weights_offset;
  raw.weights_bytes = weights.size();
  raw.weights_checksum = checksum(weights.data(), weights.size());
  raw.header_checksum = header_checksum(raw);
  std::vector<std::byte> bytes(raw.file_bytes);
  std::memcpy(bytes.data(), &raw, sizeof raw);
  std::memcpy(bytes.data() + raw.table_offset, table.data(), table.size());
  if (!weights.empty()) std::memcpy(bytes.data() + raw.weights_offset, weights.data(), weights.size());
  return bytes;
}

Status write_engine(const std::string& path, const Plan& plan, std::span<const std::byte> weights) {
  return write_file_atomically(path, encode_engine(plan, weights));
}

}  // namespace flywheel::engine
