// SPDX-License-Identifier: Apache-2.0
// Checks of copy and its tactics: plain copies run a CopyPlan; padded ones go row by row with tables that say, for each
// index of Y, where in X it comes from.
#include "kernels/copy/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/copy/copy_plan.h"
#include "kernels/copy/pad_source.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Status check_copy(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kCopy, 1));
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (problem.inputs.size() != 1 || !problem.program.empty())
    return invalid_argument("copy takes one input and no program");
  if (x.dtype != y.dtype || x.rank() != y.rank()) {
    return invalid_argument(
        fmt::format("copy from {} to {}: types and ranks must be equal", x.to_string(), y.to_string()));
  }
  for (int d = 0; d < y.rank(); ++d) {
    if (y.dims[d] > 1 && y.strides[d] == 0 && y.elements() > 0) {
      return invalid_argument(fmt::format("copy to {} writes one element several times", y.to_string()));
    }
  }
  if (problem.ints.empty()) {
    if (x.dims == y.dims) return Status::ok();
    return invalid_argument(fmt::format("copy from {} to {}: dims must be equal", x.to_string(), y.to_string()));
  }
  const size_t rank = x.dims.size();
  if (problem.ints.size() != 2 + 2 * rank || problem.ints[0] < 0 || problem.ints[0] > 3) {
    return invalid_argument(
        fmt::format("copy with pads takes ints [mode 0..3, fill, before..., after...]: {} for rank {}, not {}",
                    2 + 2 * rank, rank, problem.ints.size()));
  }
  for (size_t d = 0; d < rank; ++d) {
    int64_t extent = 0;
    if (__builtin_add_overflow(x.dims[d], problem.ints[2 + d], &extent) ||
        __builtin_add_overflow(extent, problem.ints[2 + rank + d], &extent) || extent != y.dims[d]) {
      return invalid_argument(fmt::format("copy dim {}: {} padded by {} and {} is not {}", d, x.dims[d],
                                          problem.ints[2 + d], problem.ints[2 + rank + d], y.dims[d]));
    }
    if (x.dims[d] == 0 && y.dims[d] > 0 && problem.ints[0] != 0) {
      return invalid_argument(fmt::format("copy dim {}: nothing can be repeated from an empty dim", d));
    }
  }
  return Status::ok();
}

namespace {

// Strides of extent-1 dims say nothing; 0 lets neighbours merge.
Dims useful_strides(const TensorDesc& desc) {
  Dims strides = desc.strides;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (desc.dims[d] == 1) strides[d] = 0;
  }
  return strides;
}

class PlainCopy final : public BoundKernel {
 public:
  PlainCopy(const Problem& problem, int workers, TransposeFn transpose)
      : plan_(CopyPlan::make(problem.outputs[0].dims, useful_strides(problem.outputs[0]),
                             useful_strides(problem.inputs[0]),
                             static_cast<int64_t>(dtype_size(problem.outputs[0].dtype)), workers, transpose)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto [begin, end] = worker.share(plan_.pieces());
    plan_.run(static_cast<const std::byte*>(operands.inputs[0]), static_cast<std::byte*>(operands.outputs[0]), begin,
              end);
  }

 private:
  CopyPlan plan_;
};

class PaddedCopy final : public BoundKernel {
 public:
  explicit PaddedCopy(const Problem& problem)
      : element_bytes_(static_cast<int64_t>(dtype_size(problem.outputs[0].dtype))),
        fill_(static_cast<uint64_t>(problem.ints[1])) {
    const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
    const auto mode = static_cast<PadMode>(problem.ints[0]);
    const size_t rank = y.dims.size();
    std::vector<size_t> order(rank);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs(y.strides[a]) > std::abs(y.strides[b]); });
    bool inner = true;  // the dims seen so far, from the innermost, are one run that is copied as it is
    for (size_t i = rank; i-- > 0;) {
      const size_t d = order[i];
      const int64_t before = problem.ints[2 + d];
      const bool whole = before == 0 && x.dims[d] == y.dims[d];
      if (inner && whole && (y.dims[d] == 1 || (x.strides[d] == run_ && y.strides[d] == run_))) {
        run_ *= y.dims[d];
        continue;
      }
      inner = false;
      Dim dim{y.dims[d], y.strides[d] * element_bytes_, std::vector<int64_t>(static_cast<size_t>(y.dims[d]))};
      for (int64_t j = 0; j < y.dims[d]; ++j) {
        const int64_t source = pad_source(j - before, x.dims[d], mode);
        dim.source_bytes[j] = source == kPadFill ? kPadFill : source * x.strides[d] * element_bytes_;
      }
      dims_.insert(dims_.begin(), std::move(dim));
    }
    if (dims_.empty()) dims_.push_back({1, 0, {0}});
    for (size_t d = 0; d + 1 < dims_.size(); ++d) rows_ *= dims_[d].extent;
    if (y.elements() == 0) rows_ = 0;
    make_segments();
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const std::byte*>(operands.inputs[0]);
    auto* y = static_cast<std::byte*>(operands.outputs[0]);
    const auto [begin, end] = worker.share(rows_);
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, from = 0, to = 0;
      bool inside = true;
      for (size_t d = dims_.size() - 1; d-- > 0;) {
        const int64_t j = rest % dims_[d].extent;
        rest /= dims_[d].extent;
        to += j * dims_[d].stride_bytes;
        inside &= dims_[d].source_bytes[j] != kPadFill;
        from += inside ? dims_[d].source_bytes[j] : 0;
      }
      if (inside) {
        for (const Segment& segment : segments_) copy_segment(segment, x + from, y + to);
      } else {
        copy_segment({0, dims_.back().extent, kPadFill, 0}, x, y + to);
      }
    }
  }

 private:
  struct Dim {
    int64_t extent, stride_bytes;
    std::vector<int64_t> source_bytes;  // for each index of Y: where in X, or kPadFill
  };
  // Indexes [begin, begin + count) of the last dim come from `source_bytes` on in even steps, or are filled.
  struct Segment {
    int64_t begin, count, source_bytes, step_bytes;
  };

  void make_segments() {
    const std::vector<int64_t>& sources = dims_.back().source_bytes;
    const auto extent = static_cast<int64_t>(sources.size());
    for (int64_t j = 0; j < extent;) {
      Segment segment{j, 1, sources[j], 0};
      auto follows = [&](int64_t next) {
        return segment.source_bytes == kPadFill
                   ? sources[next] == kPadFill
                   : sources[next] != kPadFill &&
                         sources[next] == segment.source_bytes + (next - j) * segment.step_bytes;
      };
      if (segment.source_bytes != kPadFill && j + 1 < extent && sources[j + 1] != kPadFill) {
        segment.step_bytes = sources[j + 1] - sources[j];
      }
      while (j + segment.count < extent && follows(j + segment.count)) ++segment.count;
      j += segment.count;
      segments_.push_back(segment);
    }
  }

  void copy_segment(const Segment& segment, const std::byte* x, std::byte* y) const {
    const int64_t stride = dims_.back().stride_bytes, run_bytes = run_ * element_bytes_;
    y += segment.begin * stride;
    if (segment.source_bytes == kPadFill) {
      if (run_ == 1) return fill_elements(y, stride / element_bytes_, segment.count, fill_, element_bytes_);
      if (stride == run_bytes) return fill_elements(y, 1, segment.count * run_, fill_, element_bytes_);
      for (int64_t j = 0; j < segment.count; ++j) fill_elements(y + j * stride, 1, run_, fill_, element_bytes_);
      return;
    }
    x += segment.source_bytes;
    if (run_ == 1) {
      return copy_elements(x, segment.step_bytes / element_bytes_, y, stride / element_bytes_, segment.count,
                           element_bytes_);
    }
    if (stride == run_bytes && segment.step_bytes == run_bytes) {
      return copy_elements(x, 1, y, 1, segment.count * run_, element_bytes_);
    }
    for (int64_t j = 0; j < segment.count; ++j)
      copy_elements(x + j * segment.step_bytes, 1, y + j * stride, 1, run_, element_bytes_);
  }

  int64_t element_bytes_, run_ = 1, rows_ = 1;
  uint64_t fill_;
  std::vector<Dim> dims_;  // outermost of Y first; a run of run_ elements is inside the last
  std::vector<Segment> segments_;
};

// The tables of a padded copy hold an entry for each index of each dim.
constexpr int64_t kLongestPaddedDim = int64_t{1} << 24;

Status accepts(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(check_copy(problem));
  for (int64_t extent : problem.outputs[0].dims) {
    if (!problem.ints.empty() && extent > kLongestPaddedDim) {
      return unsupported(fmt::format("padded dim of {}; the longest is {}", extent, kLongestPaddedDim));
    }
  }
  return Status::ok();
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts(problem, machine));
  if (!problem.ints.empty()) return std::unique_ptr<BoundKernel>(std::make_unique<PaddedCopy>(problem));
  TransposeFn transpose = portable::transpose;
#if defined(__x86_64__)
  if (kIsa == Isa::kAvx512) transpose = avx512::transpose;
  if (kIsa == Isa::kAvx2) transpose = avx2::transpose;
#endif
  return std::unique_ptr<BoundKernel>(std::make_unique<PlainCopy>(problem, workers, transpose));
}

}  // namespace

#if defined(__x86_64__)
extern const Tactic copy_avx512;
constinit const Tactic copy_avx512{"copy_avx512", Family::kCopy, Isa::kAvx512, accepts, nullptr, bind<Isa::kAvx512>};
extern const Tactic copy_avx2;
constinit const Tactic copy_avx2{"copy_avx2", Family::kCopy, Isa::kAvx2, accepts, nullptr, bind<Isa::kAvx2>};
#endif
extern const Tactic copy_portable;
constinit const Tactic copy_portable{"copy_portable", Family::kCopy, Isa::kPortable,
                                     accepts,         nullptr,       bind<Isa::kPortable>};

}  // namespace flywheel::kernels
