// SPDX-License-Identifier: Apache-2.0
// Named arrays in NumPy's .npz format: a ZIP archive of .npy files, stored or deflated, with or without ZIP64. Read
// from anywhere (every offset and size is checked, what an archive may unpack to is bounded), written stored, with the
// same bytes for the same arrays. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/npy.h"

namespace flywheel::cli {

using ArrayMap = std::map<std::string, Array, std::less<>>;

// More than this an archive may not unpack to, all arrays together.
inline constexpr uint64_t kMaxUnpackedBytes = uint64_t{16} << 30;

// kNotFound, kCorrupt or kUnsupported (encryption, other compressions), naming file and array.
Result<ArrayMap> read_npz(const std::string& path);
Result<ArrayMap> parse_npz(std::span<const std::byte> bytes, uint64_t limit_bytes = kMaxUnpackedBytes);

// An array to write, owned by someone else. `data` is row-major.
struct NamedArray {
  std::string name;
  DType dtype;
  Dims dims;
  std::span<const std::byte> data;
};
// Replaces the file at once, when all is written.
Status write_npz(const std::string& path, std::span<const NamedArray> arrays);
std::vector<std::byte> encode_npz(std::span<const NamedArray> arrays);

}  // namespace flywheel::cli
