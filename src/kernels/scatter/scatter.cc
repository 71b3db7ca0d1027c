// SPDX-License-Identifier: Apache-2.0
#include "kernels/scatter/scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/element.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Result<ScatterParams> ScatterParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kScatter, 3));
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("scatter: {}", why)); };
  if (problem.ints.size() != 3 || problem.ints[0] < 0 || problem.ints[0] > 1 || problem.ints[2] < 0 ||
      problem.ints[2] > 4) {
    return refuse("it needs ints [kind, axis, reduction]");
  }
  if (problem.inputs.size() != 3 || !problem.program.empty()) return refuse("it takes 3 inputs and no program");
  const TensorDesc &data = problem.inputs[0], &indices = problem.inputs[1], &updates = problem.inputs[2],
                   &y = problem.outputs[0];
  ScatterParams p;
  p.kind = static_cast<ScatterKind>(problem.ints[0]);
  p.axis = problem.ints[1];
  p.reduction = static_cast<ScatterReduction>(problem.ints[2]);
  if (indices.dtype != DType::kInt32 && indices.dtype != DType::kInt64) {
    return refuse(fmt::format("its indices {} are not i32 or i64", indices.to_string()));
  }
  for (const TensorDesc* desc : {&data, &indices, &updates, &y}) {
    if (!desc->is_contiguous()) return refuse(fmt::format("{} is not contiguous", desc->to_string()));
  }
  if (data.dtype != y.dtype || data.dtype != updates.dtype || data.dims != y.dims) {
    return refuse(
        fmt::format("{} with updates {} does not give {}", data.to_string(), updates.to_string(), y.to_string()));
  }
  if (data.dtype == DType::kBool && p.reduction != ScatterReduction::kNone) return refuse("bools cannot be reduced");
  bool fits = true;
  if (p.kind == ScatterKind::kElements) {
    fits = p.axis >= 0 && p.axis < data.rank() && indices.rank() == data.rank() && updates.dims == indices.dims;
    for (int d = 0; fits && d < data.rank(); ++d) fits = d == p.axis || indices.dims[d] <= data.dims[d];
  } else {
    fits = indices.rank() >= 1 && indices.dims.back() >= 0 && indices.dims.back() <= data.rank();
    if (fits) {
      Dims expected(indices.dims.begin(), indices.dims.end() - 1);
      expected.insert(expected.end(), data.dims.begin() + indices.dims.back(), data.dims.end());
      fits = updates.dims == expected;
    }
  }
  if (!fits) {
    return refuse(fmt::format("indices {} and updates {} do not fit {}", indices.to_string(), updates.to_string(),
                              data.to_string()));
  }
  return p;
}

namespace {

// Reads index number i; false when it is out of range. Negative ones count from the end.
bool read_index(const void* indices, DType dtype, int64_t i, int64_t extent, int64_t& out) {
  out = dtype == DType::kInt64 ? static_cast<const int64_t*>(indices)[i] : static_cast<const int32_t*>(indices)[i];
  if (out < 0) out += extent;
  return out >= 0 && out < extent;
}

template <class T>
T reduce_pair(ScatterReduction reduction, T a, T b) {
  // Integers wrap around: they are added and multiplied without sign.
  switch (reduction) {
    case ScatterReduction::kAdd: return a + b;
    case ScatterReduction::kMul: return a * b;
    case ScatterReduction::kMax: return a != a || a > b ? a : b;
    case ScatterReduction::kMin: return a != a || a < b ? a : b;
    default: return b;
  }
}

// Y[..] = reduce(Y[..], updates[..]) for `count` elements in a row.
template <class T>
void reduce_run(ScatterReduction reduction, DType dtype, std::byte* y, const std::byte* updates, int64_t count) {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  for (int64_t i = 0; i < count; ++i, y += size, updates += size) {
    store_element<T>(dtype, y, reduce_pair(reduction, load_element<T>(dtype, y), load_element<T>(dtype, updates)));
  }
}

void apply(ScatterReduction reduction, DType dtype, std::byte* y, const std::byte* updates, int64_t count) {
  if (reduction == ScatterReduction::kNone) {
    std::memcpy(y, updates, static_cast<size_t>(count) * dtype_size(dtype));
  } else if (dtype == DType::kFloat64) {
    reduce_run<double>(reduction, dtype, y, updates, count);
  } else if (is_float(dtype)) {
    reduce_run<float>(reduction, dtype, y, updates, count);
  } else if (reduction == ScatterReduction::kAdd || reduction == ScatterReduction::kMul || dtype == DType::kUInt64) {
    reduce_run<uint64_t>(reduction, dtype, y, updates, count);
  } else {
    reduce_run<int64_t>(reduction, dtype, y, updates, count);
  }
}

// Each member makes one range of Y whole: it copies that part of the data and then goes through all updates, of which
// it takes what falls into its range. So the order of the updates holds and no barrier is needed.
class ScatterReference final : public BoundKernel {
 public:
  ScatterReference(const ScatterParams& params, const Problem& problem)
      : p_(params),
        data_(problem.inputs[0]),
        indices_(problem.inputs[1]),
        no_updates_(problem.inputs[2].elements() == 0) {
    size_ = static_cast<int64_t>(dtype_size(data_.dtype));
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const Worker::Range mine = worker.share(data_.elements());
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const auto* data = static_cast<const std::byte*>(operands.inputs[0]);
    if (mine.begin < mine.end) {
      std::memcpy(y + mine.begin * size_, data + mine.begin * size_,
                  static_cast<size_t>((mine.end - mine.begin) * size_));
    }
    if (no_updates_) return;
    const bool good = p_.kind == ScatterKind::kNd ? scatter_slices(operands, mine) : scatter_elements(operands, mine);
    if (!good) operands.faults->fetch_or(kIndexOutOfRange, std::memory_order_relaxed);
  }

 private:
  bool scatter_slices(const Operands& operands, Worker::Range mine) const noexcept {
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const auto* updates = static_cast<const std::byte*>(operands.inputs[2]);
    const int64_t depth = indices_.dims.back();
    const int64_t slices = element_count(std::span(indices_.dims).first(indices_.dims.size() - 1));
    const int64_t length = element_count(std::span(data_.dims).subspan(static_cast<size_t>(depth)));
    bool all_good = true;
    for (int64_t i = 0; i < slices; ++i) {
      int64_t target = 0;
      bool good = true;
      for (int64_t k = 0; good && k < depth; ++k) {
        int64_t index = 0;
        good = read_index(operands.inputs[1], indices_.dtype, i * depth + k, data_.dims[k], index);
        target += index * data_.strides[k];
      }
      all_good &= good;
      const int64_t begin = std::max(target, mine.begin), end = std::min(target + length, mine.end);
      if (!good || begin >= end) continue;
      apply(p_.reduction, data_.dtype, y + begin * size_, updates + (i * length + begin - target) * size_, end - begin);
    }
    return all_good;
  }

  bool scatter_elements(const Operands& operands, Worker::Range mine) const noexcept {
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const auto* updates = static_cast<const std::byte*>(operands.inputs[2]);
    const int64_t count = indices_.elements();
    int64_t at[kMaxRank] = {};
    int64_t base = 0;  // of the target, but for the axis
    bool all_good = true;
    for (int64_t i = 0; i < count; ++i) {
      int64_t index = 0;
      const bool good = read_index(operands.inputs[1], indices_.dtype, i, data_.dims[p_.axis], index);
      const int64_t target = base + index * data_.strides[p_.axis];
      all_good &= good;
      if (good && target >= mine.begin && target < mine.end) {
        apply(p_.reduction, data_.dtype, y + target * size_, updates + i * size_, 1);
      }
      for (int d = indices_.rank() - 1; d >= 0; --d) {
        const int64_t stride = d == p_.axis ? 0 : data_.strides[d];
        base += stride;
        if (++at[d] < indices_.dims[d]) break;
        base -= stride * indices_.dims[d];
        at[d] = 0;
      }
    }
    return all_good;
  }

  ScatterParams p_;
  TensorDesc data_, indices_;
  bool no_updates_;
  int64_t size_ = 1;
};

Status accepts(const Problem& problem, const Machine&) { return ScatterParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(ScatterParams params, ScatterParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<ScatterReference>(params, problem));
}

}  // namespace

extern constinit const Tactic scatter_reference{
    "scatter_reference", Family::kScatter, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
