// SPDX-License-Identifier: Apache-2.0
#include "kernels/strided.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace flywheel::kernels {

bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to) {
  if (from.size() > to.size()) return false;
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t extent = from[from.size() - 1 - i];
    if (extent != 1 && extent != to[to.size() - 1 - i]) return false;
  }
  return true;
}

Dims broadcast_strides(const TensorDesc& desc, std::span<const int64_t> dims) {
  Dims strides(dims.size(), 0);
  const size_t missing = dims.size() - desc.dims.size();
  for (size_t i = missing; i < dims.size(); ++i) {
    if (desc.dims[i - missing] != 1) strides[i] = desc.strides[i - missing];
  }
  return strides;
}

LoopNest LoopNest::make(std::span<const int64_t> dims, std::span<const Dims> strides, LoopOrder order, int min_rank) {
  std::vector<size_t> kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) kept.push_back(d);
  }
  if (order == LoopOrder::kByFirstOperand) {
    std::stable_sort(kept.begin(), kept.end(),
                     [&](size_t a, size_t b) { return std::abs(strides[0][a]) > std::abs(strides[0][b]); });
  }
  LoopNest nest;
  nest.strides.resize(strides.size());
  for (size_t d : kept) {
    bool merges = !nest.extents.empty();
    for (size_t o = 0; o < strides.size() && merges; ++o) {
      int64_t span = 0;
      merges = !__builtin_mul_overflow(strides[o][d], dims[d], &span) && nest.strides[o].back() == span;
    }
    if (merges) {
      nest.extents.back() *= dims[d];
      for (size_t o = 0; o < strides.size(); ++o) nest.strides[o].back() = strides[o][d];
    } else {
      nest.extents.push_back(dims[d]);
      for (size_t o = 0; o < strides.size(); ++o) nest.strides[o].push_back(strides[o][d]);
    }
  }
  while (nest.rank() < min_rank) {
    nest.extents.insert(nest.extents.begin(), 1);
    for (auto& operand : nest.strides) operand.insert(operand.begin(), 0);
  }
  return nest;
}

NestWalker::NestWalker(const LoopNest& nest, int dims, int64_t start)
    : nest_(&nest), dims_(dims), operands_(static_cast<int>(nest.strides.size())) {
  for (int d = dims - 1; d >= 0; --d) {
    index_[d] = d == 0 ? start : start % nest.extents[d];
    start /= nest.extents[d];
    for (int o = 0; o < operands_; ++o) offsets_[o] += index_[d] * nest.strides[o][d];
  }
}

int64_t LoopNest::points(int from, int to) const {
  return std::accumulate(extents.begin() + from, extents.begin() + to, int64_t{1}, std::multiplies<>());
}

}  // namespace flywheel::kernels
