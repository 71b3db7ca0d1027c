// SPDX-License-Identifier: Apache-2.0
// Reading and writing engine files (format.md). The writer gives the same bytes for the same plan; the reader trusts
// nothing: every offset, index and size is checked before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/cpu_info.h"
#include "base/mapped_file.h"
#include "engine/plan.h"

namespace flywheel::engine {

inline constexpr uint32_t kFormatVersion = 1;
// Changes whenever a tactic's packed layout or meaning changes, so that an old engine is refused instead of computing
// nonsense.
inline constexpr uint32_t kKernelLibraryVersion = 1;

struct Header {
  uint32_t format_version = 0;
  uint32_t library_version = 0;
  uint32_t device = 0;  // 1: CPU
  Isa isa = Isa::kPortable;
  uint64_t model_hash = 0;
  uint64_t file_bytes = 0;
  uint64_t table_offset = 0, table_bytes = 0, table_checksum = 0;
  uint64_t weights_offset = 0, weights_bytes = 0, weights_checksum = 0;
};

// From a file's first bytes. kCorrupt: too short, wrong magic, damaged header.
Result<Header> read_header(std::span<const std::byte> file);
// Would it run here? kIncompatible with found and needed: format or library version, device, instruction set.
Status check(const Header& header, const Machine& machine);

struct EngineFile {
  MappedFile file;
  Header header;
  Plan plan;
  std::span<const std::byte> weights;  // into `file`
};

// Maps or copies, checks and decodes. Also checks the plan's inside: indices, tactic names, programs, extents within
// their sections. Not the weights' checksum, which reads the whole file: see check_weights().
Result<EngineFile> read_engine(const std::string& path, const Machine& machine, FileAccess access = FileAccess::kMap);
// kCorrupt when the weights are not what was written. No value in them can make a kernel leave its buffers, so this may
// come after reading and before the first use.
Status check_weights(const EngineFile& engine);
// Both, from memory that outlives the result (fuzzing and tests); `file` stays empty.
Result<EngineFile> read_engine_bytes(std::span<const std::byte> bytes, const Machine& machine);

Status write_engine(const std::string& path, const Plan& plan, std::span<const std::byte> weights);
std::vector<std::byte> encode_engine(const Plan& plan, std::span<const std::byte> weights);

}  // namespace flywheel::engine
