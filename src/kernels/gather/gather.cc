// SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

// The output dims that a gather of valid operands has.
Dims output_dims(const TensorDesc& data, const TensorDesc& indices, const GatherParams& p) {
  Dims out;
  switch (p.kind) {
    case GatherKind::kGather:
      out.assign(data.dims.begin(), data.dims.begin() + p.axis);
      out.insert(out.end(), indices.dims.begin(), indices.dims.end());
      out.insert(out.end(), data.dims.begin() + p.axis + 1, data.dims.end());
      break;
    case GatherKind::kElements: out = indices.dims; break;
    case GatherKind::kNd:
      out.assign(indices.dims.begin(), indices.dims.end() - 1);
      out.insert(out.end(), data.dims.begin() + p.batch_dims + indices.dims.back(), data.dims.end());
      break;
  }
  return out;
}

}  // namespace

Result<GatherParams> GatherParams::from(const Problem& problem) {
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("gather: {}", why)); };
  if (problem.ints.size() != 3 || problem.ints[0] < 0 || problem.ints[0] > 2)
    return refuse("it needs ints [kind, axis, batch_dims]");
  if (problem.inputs.size() != 2 || problem.outputs.size() != 1 || !problem.program.empty()) {
    return refuse("it takes 2 inputs, 1 output and no program");
  }
  const TensorDesc &data = problem.inputs[0], &indices = problem.inputs[1], &y = problem.outputs[0];
  GatherParams p;
  p.kind = static_cast<GatherKind>(problem.ints[0]);
  p.axis = problem.ints[1];
  p.batch_dims = problem.ints[2];
  if (indices.dtype != DType::kInt32 && indices.dtype != DType::kInt64) {
    return refuse(fmt::format("its indices {} are not i32 or i64", indices.to_string()));
  }
  if (!indices.is_contiguous()) return refuse(fmt::format("its indices {} are not contiguous", indices.to_string()));
  if (data.dtype != y.dtype) return refuse(fmt::format("{} does not give {}", data.to_string(), y.to_string()));
  if (p.kind != GatherKind::kNd && (p.axis < 0 || p.axis >= data.rank())) {
    return refuse(fmt::format("axis {} is not one of {}", p.axis, data.to_string()));
  }
  if (p.kind == GatherKind::kElements) {
    bool fits = indices.rank() == data.rank();
    for (int d = 0; fits && d < data.rank(); ++d) fits = d == p.axis || indices.dims[d] <= data.dims[d];
    if (!fits) return refuse(fmt::format("its indices {} do not fit {}", indices.to_string(), data.to_string()));
  }
  if (p.kind == GatherKind::kNd) {
    if (indices.rank() < 1 || p.batch_dims < 0 || p.batch_dims >= indices.rank() || indices.dims.back() < 0 ||
        p.batch_dims + indices.dims.back() > data.rank()) {
      return refuse(fmt::format("its indices {} do not fit {}", indices.to_string(), data.to_string()));
    }
    for (int64_t d = 0; d < p.batch_dims; ++d) {
      if (indices.dims[d] != data.dims[d]) return refuse("its batch dims differ");
    }
  }
  if (y.dims != output_dims(data, indices, p)) {
    return refuse(fmt::format("{} at {} does not give {}", data.to_string(), indices.to_string(), y.to_string()));
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

int64_t strided_offset(std::span<const int64_t> dims, const int64_t* strides, int64_t linear) {
  int64_t offset = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    offset += linear % dims[d] * strides[d];
    linear /= dims[d];
  }
  return offset;
}

// kind 0 by runs: what lies behind the axis is contiguous on both sides, so each index moves one block of bytes.
class GatherRows final : public BoundKernel {
 public:
  GatherRows(const GatherParams& params, const Problem& problem)
      : axis_(static_cast<size_t>(params.axis)),
        data_(problem.inputs[0]),
        indices_(problem.inputs[1]),
        y_(problem.outputs[0]) {
    size_ = static_cast<int64_t>(dtype_size(data_.dtype));
    run_bytes_ = element_count(std::span(data_.dims).subspan(axis_ + 1)) * size_;
    outer_ = element_count(std::span(data_.dims).first(axis_));
    count_ = indices_.elements();
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* data = static_cast<const std::byte*>(operands.inputs[0]);
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const std::span outer_dims = std::span(data_.dims).first(axis_);
    const int64_t* inner_strides = y_.strides.data() + axis_;
    bool good = true;
    const Worker::Range rows = worker.share(outer_ * count_);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t o = row / count_, i = row % count_;
      int64_t index = 0;
      std::byte* out =
          y +
          (strided_offset(outer_dims, y_.strides.data(), o) + strided_offset(indices_.dims, inner_strides, i)) * size_;
      if (!read_index(operands.inputs[1], indices_.dtype, i, data_.dims[axis_], index)) {
        std::memset(out, 0, static_cast<size_t>(run_bytes_));
        good = false;
        continue;
      }
      const std::byte* in =
          data + (strided_offset(outer_dims, data_.strides.data(), o) + index * data_.strides[axis_]) * size_;
      std::memcpy(out, in, static_cast<size_t>(run_bytes_));
    }
    if (!good) operands.faults->fetch_or(kIndexOutOfRange, std::memory_order_relaxed);
  }

  // Whether what lies behind the axis is one run in `desc`, whose dims from `first` on are those.
  static bool is_run(const TensorDesc& desc, size_t first) {
    int64_t stride = 1;
    for (size_t d = desc.dims.size(); d-- > first;) {
      if (desc.dims[d] != 1 && desc.strides[d] != stride) return false;
      stride *= desc.dims[d];
    }
    return true;
  }

 private:
  size_t axis_;
  TensorDesc data_, indices_, y_;
  int64_t size_ = 1, run_bytes_ = 0, outer_ = 0, count_ = 0;
};

// The oracle, for every kind: one element after the other.
class GatherReference final : public BoundKernel {
 public:
  GatherReference(const GatherParams& params, const Problem& problem)
      : p_(params), data_(problem.inputs[0]), indices_(problem.inputs[1]), y_(problem.outputs[0]) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const size_t size = dtype_size(data_.dtype);
    const auto* data = static_cast<const std::byte*>(operands.inputs[0]);
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const Worker::Range range = worker.share(y_.elements());
    for (int64_t linear = range.begin; linear < range.end; ++linear) {
      int64_t at[kMaxRank] = {}, rest = linear, out = 0;
      for (int d = y_.rank() - 1; d >= 0; --d) {
        at[d] = rest % y_.dims[d];
        rest /= y_.dims[d];
        out += at[d] * y_.strides[d];
      }
      int64_t from = 0;
      std::byte* target = y + out * static_cast<int64_t>(size);
      if (source(operands.inputs[1], at, from)) {
        std::memcpy(target, data + from * static_cast<int64_t>(size), size);
      } else {
        std::memset(target, 0, size);
        operands.faults->fetch_or(kIndexOutOfRange, std::memory_order_relaxed);
      }
    }
  }

 private:
  // The offset in data of the output element at `at`; false when an index is out of range.
  bool source(const void* indices, const int64_t* at, int64_t& from) const noexcept {
    auto linear_index = [&](const int64_t* position, int rank) {
      int64_t linear = 0;
      for (int d = 0; d < rank; ++d) linear = linear * indices_.dims[d] + position[d];
      return linear;
    };
    int64_t index = 0;
    from = 0;
    if (p_.kind == GatherKind::kGather) {
      const int inner = indices_.rank();
      if (!read_index(indices, indices_.dtype, linear_index(at + p_.axis, inner), data_.dims[p_.axis], index))
        return false;
      for (int d = 0; d < data_.rank(); ++d) {
        from += (d < p_.axis ? at[d] : d == p_.axis ? index : at[d + inner - 1]) * data_.strides[d];
      }
      return true;
    }
    if (p_.kind == GatherKind::kElements) {
      if (!read_index(indices, indices_.dtype, linear_index(at, indices_.rank()), data_.dims[p_.axis], index))
        return false;
      for (int d = 0; d < data_.rank(); ++d) from += (d == p_.axis ? index : at[d]) * data_.strides[d];
      return true;
    }
    const int lead = indices_.rank() - 1;
    const int64_t depth = indices_.dims.back(), first = linear_index(at, lead) * depth;
    for (int64_t d = 0; d < p_.batch_dims; ++d) from += at[d] * data_.strides[d];
    for (int64_t k = 0; k < depth; ++k) {
      if (!read_index(indices, indices_.dtype, first + k, data_.dims[p_.batch_dims + k], index)) return false;
      from += index * data_.strides[p_.batch_dims + k];
    }
    for (int64_t d = p_.batch_dims + depth; d < data_.rank(); ++d)
      from += at[lead + d - p_.batch_dims - depth] * data_.strides[d];
    return true;
  }

  GatherParams p_;
  TensorDesc data_, indices_, y_;
};

Status accepts_rows(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(GatherParams params, GatherParams::from(problem));
  if (params.kind != GatherKind::kGather) return unsupported("gather_rows does kind Gather only");
  const auto axis = static_cast<size_t>(params.axis);
  if (!GatherRows::is_run(problem.inputs[0], axis + 1) ||
      !GatherRows::is_run(problem.outputs[0], axis + problem.inputs[1].dims.size())) {
    return unsupported("gather_rows needs contiguous data behind the axis");
  }
  return Status::ok();
}

Status accepts_reference(const Problem& problem, const Machine&) { return GatherParams::from(problem).status(); }

template <class Kernel, Status (*kAccepts)(const Problem&, const Machine&)>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int) {
  FW_RETURN_IF_ERROR(kAccepts(problem, machine));
  FW_ASSIGN_OR_RETURN(GatherParams params, GatherParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<Kernel>(params, problem));
}

}  // namespace

extern constinit const Tactic gather_rows{"gather_rows", Family::kGather, Isa::kPortable,
                                          accepts_rows,  nullptr,         bind<GatherRows, accepts_rows>};
extern constinit const Tactic gather_reference{
    "gather_reference", Family::kGather, Isa::kPortable,
    accepts_reference,  nullptr,         bind<GatherReference, accepts_reference>};

}  // namespace flywheel::kernels
