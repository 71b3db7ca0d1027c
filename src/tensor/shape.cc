// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flywheel {

std::optional<int64_t> checked_element_count(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

int64_t element_count(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

Dims contiguous_strides(std::span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

std::string dims_to_string(std::span<const int64_t> dims) {
  return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, "x"));
}

TensorDesc TensorDesc::contiguous(DType dtype, Dims dims) {
  TensorDesc desc{dtype, std::move(dims), {}};
  desc.strides = contiguous_strides(desc.dims);
  return desc;
}

bool TensorDesc::is_contiguous() const {
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != stride) return false;
    stride *= dims[i];
  }
  return true;
}

std::string TensorDesc::to_string() const {
  std::string text = fmt::format("{} {}", dtype_name(dtype), dims_to_string(dims));
  if (!is_contiguous()) text += fmt::format(" strides {}", fmt::join(strides, ","));
  return text;
}

Result<Dims> broadcast_dims(std::span<const int64_t> a, std::span<const int64_t> b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1, db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) {
      return invalid_argument(fmt::format("shapes {} and {} do not broadcast: {} against {}", dims_to_string(a),
                                          dims_to_string(b), da, db));
    }
    out[out.size() - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace flywheel
