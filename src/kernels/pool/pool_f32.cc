// SPDX-License-Identifier: Apache-2.0
// pool in f32 on every ISA: output rows are shared out; each window runs over all channels at once.
#include "kernels/pool/pool.h"
#include "kernels/pool/pool_window.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

using WindowFn = void (*)(const PoolWindow&);

WindowFn window_function(Isa isa, PoolKind kind) {
  const bool max = kind == PoolKind::kMax;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return max ? avx512::max_window : avx512::average_window;
  if (isa == Isa::kAvx2) return max ? avx2::max_window : avx2::average_window;
#endif
  (void)isa;
  return max ? portable::max_window : portable::average_window;
}

class PoolF32 final : public BoundKernel {
 public:
  PoolF32(const PoolParams& params, const Problem& problem, Isa isa)
      : params_(params), x_(problem.inputs[0]), y_(problem.outputs[0]), window_(window_function(isa, params.kind)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const float*>(operands.inputs[0]);
    auto* y = static_cast<float*>(operands.outputs[0]);
    const Worker::Range rows = worker.share(y_.dims[0] * y_.dims[1]);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t n = row / y_.dims[1], oy = row % y_.dims[1];
      const WindowSpan down = window_span(oy, params_.stride_h, params_.pad_top, params_.pad_bottom, params_.kernel_h,
                                          params_.dilation_h, x_.dims[1]);
      PoolWindow window{};
      window.rows = down.count;
      window.row_step = params_.dilation_h * x_.strides[1];
      window.column_step = params_.dilation_w * x_.strides[2];
      window.channels = y_.dims[3];
      for (int64_t ox = 0; ox < y_.dims[2]; ++ox) {
        const WindowSpan across = window_span(ox, params_.stride_w, params_.pad_left, params_.pad_right,
                                              params_.kernel_w, params_.dilation_w, x_.dims[2]);
        window.x = x + n * x_.strides[0] + down.begin * x_.strides[1] + across.begin * x_.strides[2];
        window.columns = across.count;
        window.out = y + n * y_.strides[0] + oy * y_.strides[1] + ox * y_.strides[2];
        const int64_t counted = params_.count_include_pad ? down.padded * across.padded : down.count * across.count;
        window.scale = params_.kind == PoolKind::kMax ? 1.0F : 1.0F / static_cast<float>(counted);
        window_(window);
      }
    }
  }

 private:
  PoolParams params_;
  TensorDesc x_, y_;
  WindowFn window_;
};

// The oracle: the definition, in doubles.
template <class T>
class PoolReference final : public BoundKernel {
 public:
  PoolReference(const PoolParams& params, const Problem& problem)
      : p_(params), x_(problem.inputs[0]), y_(problem.outputs[0]) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const T*>(operands.inputs[0]);
    auto* y = static_cast<T*>(operands.outputs[0]);
    const Worker::Range rows = worker.share(y_.dims[0] * y_.dims[1]);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t n = row / y_.dims[1], oy = row % y_.dims[1];
      for (int64_t ox = 0; ox < y_.dims[2]; ++ox) {
        for (int64_t c = 0; c < y_.dims[3]; ++c) {
          y[n * y_.strides[0] + oy * y_.strides[1] + ox * y_.strides[2] + c] = static_cast<T>(
              one(x + n * x_.strides[0] + c, oy * p_.stride_h - p_.pad_top, ox * p_.stride_w - p_.pad_left));
        }
      }
    }
  }

 private:
  double one(const T* x, int64_t top, int64_t left) const noexcept {
    double largest = -__builtin_inf(), sum = 0;
    int64_t inside = 0, padded = 0;
    for (int64_t r = 0; r < p_.kernel_h; ++r) {
      for (int64_t s = 0; s < p_.kernel_w; ++s) {
        const int64_t i = top + r * p_.dilation_h, j = left + s * p_.dilation_w;
        if (i < x_.dims[1] + p_.pad_bottom && j < x_.dims[2] + p_.pad_right) ++padded;
        if (i < 0 || j < 0 || i >= x_.dims[1] || j >= x_.dims[2]) continue;
        const double value = x[i * x_.strides[1] + j * x_.strides[2]];
        largest = value > largest ? value : largest;
        sum += value;
        ++inside;
      }
    }
    if (p_.kind == PoolKind::kMax) return largest;
    return sum / static_cast<double>(p_.count_include_pad ? padded : inside);
  }

  PoolParams p_;
  TensorDesc x_, y_;
};

Status accepts(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(PoolParams::from(problem).status());
  return problem.inputs[0].dtype == DType::kFloat32 ? Status::ok() : unsupported("pool_f32 needs f32");
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int) {
  FW_RETURN_IF_ERROR(accepts(problem, machine));
  FW_ASSIGN_OR_RETURN(PoolParams params, PoolParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<PoolF32>(params, problem, kIsa));
}

Status accepts_reference(const Problem& problem, const Machine&) { return PoolParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind_reference(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(PoolParams params, PoolParams::from(problem));
  if (problem.inputs[0].dtype == DType::kFloat64) {
    return std::unique_ptr<BoundKernel>(std::make_unique<PoolReference<double>>(params, problem));
  }
  return std::unique_ptr<BoundKernel>(std::make_unique<PoolReference<float>>(params, problem));
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic pool_f32_avx512{"pool_f32_avx512", Family::kPool, Isa::kAvx512,
                                              accepts,           nullptr,       bind<Isa::kAvx512>};
extern constinit const Tactic pool_f32_avx2{"pool_f32_avx2", Family::kPool, Isa::kAvx2,
                                            accepts,         nullptr,       bind<Isa::kAvx2>};
#endif
extern constinit const Tactic pool_f32_portable{"pool_f32_portable", Family::kPool, Isa::kPortable, accepts, nullptr,
                                                bind<Isa::kPortable>};
extern constinit const Tactic pool_reference{"pool_reference",  Family::kPool, Isa::kPortable,
                                             accepts_reference, nullptr,       bind_reference};

}  // namespace flywheel::kernels
