// SPDX-License-Identifier: Apache-2.0
// Arrays in NumPy's .npy format, versions 1.0, 2.0 and 3.0: what `run`, `verify` and the like read and write. The bytes
// may come from anywhere: sizes are checked before anything is allocated. Values; an Array owns its data. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "flywheel/dtype.h"
#include "flywheel/status.h"
#include "tensor/shape.h"

namespace flywheel::cli {

struct Array {
  DType dtype = DType::kFloat32;
  Dims dims;
  AlignedBuffer data;  // row-major

  static Result<Array> make(DType dtype, Dims dims);  // zeros
  std::string to_string() const;                      // "f32 1x3x224x224"
};

// `name` is what messages call it. Fortran order and big-endian values are turned round. kCorrupt for damaged bytes,
// kUnsupported for element types that tensors do not have, naming the type found.
Result<Array> parse_npy(std::span<const std::byte> bytes, std::string_view name);

// The bytes that stand before the data of such an array in a file.
std::string npy_header(DType dtype, std::span<const int64_t> dims);

}  // namespace flywheel::cli
