// SPDX-License-Identifier: Apache-2.0
// Checks of reduce and its f32 tactics: either rows, where X is contiguous along what is reduced, or columns, where it
// is contiguous along what is kept (global average pooling over NHWC). Views that are neither are columns of one
// element: slow, but an engine's shapes may come to that (a dim of 1) where the shape it was tuned for did not.
#include "kernels/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/reduce/reduce_isa.h"
#include "kernels/strided.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

bool is_arg(ReduceKind kind) { return kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin; }

}  // namespace

Result<ReduceParams> ReduceParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kReduce, 1));
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  const auto& ints = problem.ints;
  if (problem.inputs.size() != 1 || !problem.program.empty() || ints.size() < 3 || ints[0] < 0 ||
      ints[0] > static_cast<int64_t>(ReduceKind::kArgMin)) {
    return invalid_argument(
        fmt::format("reduce takes 1 input, ints [kind 0..11, keep_dims, select_last_index, axis...] and no program, "
                    "not {} inputs and {} ints",
                    problem.inputs.size(), ints.size()));
  }
  ReduceParams params{static_cast<ReduceKind>(ints[0]), ints[1] != 0, ints[2] != 0, {ints.begin() + 3, ints.end()}};
  Dims kept;
  size_t next = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (next < params.axes.size() && params.axes[next] == d) {
      ++next;
      if (params.keep_dims) kept.push_back(1);
    } else {
      kept.push_back(x.dims[d]);
    }
  }
  if (next != params.axes.size()) {
    return invalid_argument(
        fmt::format("reduce axes [{}] are not ascending and below rank {}", dims_to_string(params.axes), x.rank()));
  }
  if (y.dims != kept || !y.is_contiguous()) {
    return invalid_argument(
        fmt::format("reduce of {} gives contiguous {}, not {}", x.to_string(), dims_to_string(kept), y.to_string()));
  }
  const bool known =
      x.dtype == DType::kFloat32 || x.dtype == DType::kFloat64 || x.dtype == DType::kInt32 || x.dtype == DType::kInt64;
  if (!known || y.dtype != (is_arg(params.kind) ? DType::kInt64 : x.dtype)) {
    return invalid_argument(
        fmt::format("reduce of {} to {}: f32, f64, i32 and i64 are known, and give their own type or, for ArgMax and "
                    "ArgMin, i64",
                    dtype_name(x.dtype), dtype_name(y.dtype)));
  }
  if (is_arg(params.kind) && (params.axes.size() != 1 || (x.dims[params.axes[0]] == 0 && y.elements() > 0))) {
    return invalid_argument(fmt::format("ArgMax and ArgMin take one axis of at least one element, not [{}] of {}",
                                        dims_to_string(params.axes), x.to_string()));
  }
  return params;
}

namespace {

constexpr int64_t kColumnBlock = 64;

struct Plan {
  ReduceKind kind;
  bool last;
  LoopNest kept;  // operand 0 is Y, 1 is X
  ReducedDims reduced;
  int64_t count;  // elements of each reduction
  bool rows;      // else columns
};

Result<Plan> make_plan(const Problem& problem) {
  FW_ASSIGN_OR_RETURN(const ReduceParams params, ReduceParams::from(problem));
  const TensorDesc& x = problem.inputs[0];
  if (x.dtype != DType::kFloat32) return unsupported("only f32");
  Dims kept_dims, kept_strides, reduced_dims, reduced_strides;
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduces = std::find(params.axes.begin(), params.axes.end(), d) != params.axes.end();
    (reduces ? reduced_dims : kept_dims).push_back(x.dims[d]);
    (reduces ? reduced_strides : kept_strides).push_back(x.strides[d]);
  }
  const Dims kept_views[] = {contiguous_strides(kept_dims), kept_strides};
  const Dims reduced_views[] = {reduced_strides};
  Plan plan{params.kind, params.select_last_index, LoopNest::make(kept_dims, kept_views, LoopOrder::kAsGiven, 1), {}, 1,
            false};
  const LoopNest reduced = LoopNest::make(reduced_dims, reduced_views, LoopOrder::kByFirstOperand, 1);
  plan.reduced.rank = reduced.rank();
  for (int d = 0; d < reduced.rank(); ++d) {
    plan.reduced.extents[d] = reduced.extents[d];
    plan.reduced.strides[d] = reduced.strides[0][d];
    plan.count *= reduced.extents[d];
  }
  if (plan.count == 0) return unsupported("a reduction over no element");
  if (is_arg(plan.kind) && plan.count >= INT32_MAX) return unsupported("an axis of 2^31 elements");
  if (reduced.strides[0].back() == 1 || plan.count == 1) {
    plan.rows = true;
    return plan;
  }
  if (plan.kept.strides[1].back() == 1 && plan.kept.extents.back() > 1) return plan;
  plan.kept.extents.push_back(1);
  for (auto& strides : plan.kept.strides) strides.push_back(0);
  return plan;
}

Accumulate accumulation(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kMax: return Accumulate::kMax;
    case ReduceKind::kMin: return Accumulate::kMin;
    case ReduceKind::kProd: return Accumulate::kProduct;
    case ReduceKind::kL1: return Accumulate::kAbsSum;
    case ReduceKind::kL2:
    case ReduceKind::kSumSquare: return Accumulate::kSquareSum;
    case ReduceKind::kLogSumExp: return Accumulate::kExpSum;
    default: return Accumulate::kSum;
  }
}

class ReduceF32 final : public BoundKernel {
 public:
  ReduceF32(Plan plan, ReduceLoops loops, int workers) : plan_(std::move(plan)), loops_(loops) {
    const LoopNest& kept = plan_.kept;
    outer_ = kept.points(0, kept.rank() - 1);
    columns_ = kept.extents.back();
    if (plan_.rows) {
      units_ = outer_ * columns_;
      return;
    }
    // One column's result does not depend on the block that it is in.
    block_ = outer_ * (columns_ / kColumnBlock) >= 2 * workers ? kColumnBlock : 16;
    blocks_ = (columns_ + block_ - 1) / block_;
    units_ = outer_ * blocks_;
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const float*>(operands.inputs[0]);
    const auto [begin, end] = worker.share(units_);
    for (int64_t unit = begin; unit < end; ++unit) {
      if (plan_.rows) {
        reduce_row(x + plan_.kept.offset(1, unit, plan_.kept.rank()), unit, operands.outputs[0]);
      } else {
        const int64_t row = unit / blocks_, column = unit % blocks_ * block_;
        reduce_columns(x + plan_.kept.offset(1, row, plan_.kept.rank() - 1) + column, row * columns_ + column,
                       std::min(block_, columns_ - column), operands.outputs[0]);
      }
    }
  }

 private:
  void reduce_row(const float* x, int64_t at, void* y) const {
    if (is_arg(plan_.kind)) {
      static_cast<int64_t*>(y)[at] = loops_.arg_row(x, plan_.count, plan_.kind == ReduceKind::kArgMin, plan_.last);
      return;
    }
    float shift = 0;
    if (plan_.kind == ReduceKind::kLogSumExp) shift = finite_or_zero(loops_.row(Accumulate::kMax, plan_.reduced, x, 0));
    static_cast<float*>(y)[at] = finish(loops_.row(accumulation(plan_.kind), plan_.reduced, x, shift), shift);
  }

  void reduce_columns(const float* x, int64_t at, int64_t columns, void* y) const {
    if (is_arg(plan_.kind)) {
      loops_.arg_columns(x, plan_.count, plan_.reduced.strides[0], columns, plan_.kind == ReduceKind::kArgMin,
                         plan_.last, static_cast<int64_t*>(y) + at);
      return;
    }
    float shifts[kColumnBlock] = {};
    float* out = static_cast<float*>(y) + at;
    if (plan_.kind == ReduceKind::kLogSumExp) {
      loops_.columns(Accumulate::kMax, plan_.reduced, x, columns, shifts, shifts);
      for (int64_t c = 0; c < columns; ++c) shifts[c] = finite_or_zero(shifts[c]);
    }
    loops_.columns(accumulation(plan_.kind), plan_.reduced, x, columns, shifts, out);
    for (int64_t c = 0; c < columns; ++c) out[c] = finish(out[c], shifts[c]);
  }

  // An infinite maximum must not make x - maximum NaN.
  static float finite_or_zero(float x) { return std::isinf(x) ? 0 : x; }

  float finish(float value, float shift) const {
    switch (plan_.kind) {
      case ReduceKind::kMean: return value / static_cast<float>(plan_.count);
      case ReduceKind::kL2: return std::sqrt(value);
      case ReduceKind::kLogSum: return std::log(value);
      case ReduceKind::kLogSumExp: return std::log(value) + shift;
      default: return value;
    }
  }

  Plan plan_;
  ReduceLoops loops_;
  int64_t outer_ = 0, columns_ = 0, block_ = 1, blocks_ = 0, units_ = 0;
};

Status accepts_f32(const Problem& problem, const Machine&) { return make_plan(problem).status(); }

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind_f32(const Problem& problem, const Machine&, int workers) {
  FW_ASSIGN_OR_RETURN(Plan plan, make_plan(problem));
  ReduceLoops loops{portable::reduce_row, portable::reduce_columns, portable::arg_row, portable::arg_columns};
#if defined(__x86_64__)
  if (kIsa == Isa::kAvx512) loops = {avx512::reduce_row, avx512::reduce_columns, avx512::arg_row, avx512::arg_columns};
  if (kIsa == Isa::kAvx2) loops = {avx2::reduce_row, avx2::reduce_columns, avx2::arg_row, avx2::arg_columns};
#endif
  return std::unique_ptr<BoundKernel>(std::make_unique<ReduceF32>(std::move(plan), loops, workers));
}

}  // namespace

#if defined(__x86_64__)
extern const Tactic reduce_f32_avx512;
constinit const Tactic reduce_f32_avx512{"reduce_f32_avx512", Family::kReduce, Isa::kAvx512,
                                         accepts_f32,         nullptr,         bind_f32<Isa::kAvx512>};
extern const Tactic reduce_f32_avx2;
constinit const Tactic reduce_f32_avx2{"reduce_f32_avx2", Family::kReduce, Isa::kAvx2,
                                       accepts_f32,       nullptr,         bind_f32<Isa::kAvx2>};
#endif
extern const Tactic reduce_f32_portable;
constinit const Tactic reduce_f32_portable{"reduce_f32_portable", Family::kReduce, Isa::kPortable,
                                           accepts_f32,           nullptr,         bind_f32<Isa::kPortable>};

}  // namespace flywheel::kernels
