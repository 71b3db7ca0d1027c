// SPDX-License-Identifier: Apache-2.0
// Concrete shapes and strides of tensors. Row-major unless strides say otherwise; strides count elements. Values.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flywheel/dtype.h"
#include "flywheel/status.h"

namespace flywheel {

inline constexpr int kMaxRank = 8;

using Dims = std::vector<int64_t>;

// Product of the dims, or nullopt when it overflows int64 or a dim is negative.
std::optional<int64_t> checked_element_count(std::span<const int64_t> dims);
// REQUIRES: the product fits (checked where the dims came from).
int64_t element_count(std::span<const int64_t> dims);
Dims contiguous_strides(std::span<const int64_t> dims);
std::string dims_to_string(std::span<const int64_t> dims);  // "1x3x224x224"; "scalar" for rank 0

// A tensor's type, extent and placement, without its data.
struct TensorDesc {
  DType dtype = DType::kFloat32;
  Dims dims;
  Dims strides;  // elements; same rank as dims; 0 in a broadcast dim

  static TensorDesc contiguous(DType dtype, Dims dims);
  int rank() const { return static_cast<int>(dims.size()); }
  int64_t elements() const { return element_count(dims); }
  int64_t size_bytes() const { return elements() * static_cast<int64_t>(dtype_size(dtype)); }
  bool is_contiguous() const;  // dims of extent 1 may have any stride
  bool operator==(const TensorDesc&) const = default;
  std::string to_string() const;  // "f32 1x56x56x64" (+ " strides ..." when not contiguous)
};

// NumPy broadcasting of two shapes; kInvalidArgument when they do not fit.
Result<Dims> broadcast_dims(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace flywheel
