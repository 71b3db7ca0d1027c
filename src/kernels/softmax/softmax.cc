// SPDX-License-Identifier: Apache-2.0
// Checks of softmax, its f32 tactics, which split rows (or blocks of columns) over the team, and its reference.
#include "kernels/softmax/softmax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/softmax/softmax_isa.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Result<SoftmaxParams> SoftmaxParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kSoftmax, 1));
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (problem.inputs.size() != 1 || problem.ints.size() != 2 || !problem.program.empty()) {
    return invalid_argument(
        fmt::format("softmax takes 1 input, ints [axis, log] and no program, not {} inputs and {} ints",
                    problem.inputs.size(), problem.ints.size()));
  }
  if (x.dtype != y.dtype || (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat64)) {
    return invalid_argument(
        fmt::format("softmax of {} to {}: only f32 and f64, of one type, are known", x.to_string(), y.to_string()));
  }
  if (x.dims != y.dims || !x.is_contiguous() || !y.is_contiguous()) {
    return invalid_argument(
        fmt::format("softmax needs contiguous operands of equal dims, not {} and {}", x.to_string(), y.to_string()));
  }
  const int64_t axis = problem.ints[0];
  if (axis < 0 || axis >= x.rank() || problem.ints[1] < 0 || problem.ints[1] > 1) {
    return invalid_argument(fmt::format("softmax axis {} with rank {}, log {}: expected 0 <= axis < rank, log 0 or 1",
                                        axis, x.rank(), problem.ints[1]));
  }
  SoftmaxParams params;
  params.outer = element_count(std::span(x.dims).first(axis));
  params.length = x.dims[axis];
  params.inner = element_count(std::span(x.dims).subspan(axis + 1));
  params.log = problem.ints[1] != 0;
  return params;
}

namespace {

constexpr int64_t kColumnBlock = 64;

class SoftmaxF32 final : public BoundKernel {
 public:
  SoftmaxF32(const SoftmaxParams& params, SoftmaxLoops loops) : params_(params), loops_(loops) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const float*>(operands.inputs[0]);
    auto* y = static_cast<float*>(operands.outputs[0]);
    const auto& [outer, length, inner, log] = params_;
    if (length == 0) return;
    if (inner == 1) {
      const auto [begin, end] = worker.share(outer);
      loops_.rows(x + begin * length, y + begin * length, end - begin, length, log);
      return;
    }
    const int64_t blocks = (inner + kColumnBlock - 1) / kColumnBlock;
    const auto [begin, end] = worker.share(outer * blocks);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % blocks * kColumnBlock, at = i / blocks * length * inner + column;
      loops_.columns(x + at, y + at, length, inner, std::min(kColumnBlock, inner - column), log);
    }
  }

 private:
  SoftmaxParams params_;
  SoftmaxLoops loops_;
};

template <class T>
class SoftmaxReference final : public BoundKernel {
 public:
  explicit SoftmaxReference(const SoftmaxParams& params) : params_(params) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto& [outer, length, inner, log] = params_;
    const auto [begin, end] = worker.share(outer * inner);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / inner * length * inner + i % inner;
      const T* x = static_cast<const T*>(operands.inputs[0]) + at;
      T* y = static_cast<T*>(operands.outputs[0]) + at;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t l = 0; l < length; ++l) largest = std::max(largest, static_cast<double>(x[l * inner]));
      for (int64_t l = 0; l < length; ++l) sum += std::exp(static_cast<double>(x[l * inner]) - largest);
      const double log_sum = std::log(sum);
      for (int64_t l = 0; l < length; ++l) {
        const double shifted = static_cast<double>(x[l * inner]) - largest;
        y[l * inner] = static_cast<T>(log ? shifted - log_sum : std::exp(shifted) / sum);
      }
    }
  }

 private:
  SoftmaxParams params_;
};

Status accepts_f32(const Problem& problem, const Machine&) {
  const auto params = SoftmaxParams::from(problem);
  FW_RETURN_IF_ERROR(params.status());
  return problem.inputs[0].dtype == DType::kFloat32 ? Status::ok() : unsupported("only f32");
}

SoftmaxLoops loops(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return {avx512::softmax_rows, avx512::softmax_columns};
  if (isa == Isa::kAvx2) return {avx2::softmax_rows, avx2::softmax_columns};
#endif
  (void)isa;
  return {portable::softmax_rows, portable::softmax_columns};
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind_f32(const Problem& problem, const Machine& machine, int) {
  FW_RETURN_IF_ERROR(accepts_f32(problem, machine));
  return std::unique_ptr<BoundKernel>(std::make_unique<SoftmaxF32>(SoftmaxParams::from(problem).value(), loops(kIsa)));
}

Status accepts_all(const Problem& problem, const Machine&) { return SoftmaxParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind_reference(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(const SoftmaxParams params, SoftmaxParams::from(problem));
  if (problem.inputs[0].dtype == DType::kFloat64) {
    return std::unique_ptr<BoundKernel>(std::make_unique<SoftmaxReference<double>>(params));
  }
  return std::unique_ptr<BoundKernel>(std::make_unique<SoftmaxReference<float>>(params));
}

}  // namespace

#if defined(__x86_64__)
extern const Tactic softmax_f32_avx512;
constinit const Tactic softmax_f32_avx512{"softmax_f32_avx512", Family::kSoftmax, Isa::kAvx512,
                                          accepts_f32,          nullptr,          bind_f32<Isa::kAvx512>};
extern const Tactic softmax_f32_avx2;
constinit const Tactic softmax_f32_avx2{"softmax_f32_avx2", Family::kSoftmax, Isa::kAvx2,
                                        accepts_f32,        nullptr,          bind_f32<Isa::kAvx2>};
#endif
extern const Tactic softmax_f32_portable;
constinit const Tactic softmax_f32_portable{
    "softmax_f32_portable", Family::kSoftmax, Isa::kPortable, accepts_f32, nullptr, bind_f32<Isa::kPortable>};
extern const Tactic softmax_reference;
constinit const Tactic softmax_reference{"softmax_reference", Family::kSoftmax, Isa::kPortable,
                                         accepts_all,         nullptr,          bind_reference};

}  // namespace flywheel::kernels
