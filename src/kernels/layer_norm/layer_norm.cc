// SPDX-License-Identifier: Apache-2.0
// Checks of layer_norm, its f32 tactics, which split rows over the team, and its reference.
#include "kernels/layer_norm/layer_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/layer_norm/layer_norm_isa.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {

Result<LayerNormParams> LayerNormParams::from(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kLayerNorm, 2));
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  if (problem.inputs.size() > 3 || problem.ints.size() != 2 || problem.floats.size() != 1 || !problem.program.empty()) {
    return invalid_argument(
        fmt::format("layer_norm takes X, scale and perhaps bias, ints [axis, rms], floats [epsilon] and no program, "
                    "not {} inputs, {} ints, {} "
                    "floats",
                    problem.inputs.size(), problem.ints.size(), problem.floats.size()));
  }
  const int64_t axis = problem.ints[0];
  if (axis < 0 || axis >= x.rank() || problem.ints[1] < 0 || problem.ints[1] > 1) {
    return invalid_argument(
        fmt::format("layer_norm axis {} with rank {}, rms {}: expected 0 <= axis < rank, rms 0 or 1", axis, x.rank(),
                    problem.ints[1]));
  }
  if (!(problem.floats[0] >= 0) || !std::isfinite(problem.floats[0])) {
    return invalid_argument(fmt::format("layer_norm epsilon {} is not a finite number >= 0", problem.floats[0]));
  }
  if (x.dims != y.dims || !x.is_contiguous() || !y.is_contiguous()) {
    return invalid_argument(
        fmt::format("layer_norm needs contiguous operands of equal dims, not {} and {}", x.to_string(), y.to_string()));
  }
  LayerNormParams params;
  params.rows = element_count(std::span(x.dims).first(axis));
  params.length = element_count(std::span(x.dims).subspan(axis));
  params.rms = problem.ints[1] != 0;
  params.has_bias = problem.inputs.size() == 3;
  params.epsilon = static_cast<float>(problem.floats[0]);
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const TensorDesc& in = problem.inputs[i];
    if (in.dtype != y.dtype || (in.dtype != DType::kFloat32 && in.dtype != DType::kFloat64)) {
      return invalid_argument(
          fmt::format("layer_norm input {} is {}, the output {}: only f32 and f64, of one type, are known", i,
                      dtype_name(in.dtype), dtype_name(y.dtype)));
    }
    if (i > 0 && (in.elements() != params.length || !in.is_contiguous())) {
      return invalid_argument(
          fmt::format("layer_norm input {} is {}; expected {} contiguous elements", i, in.to_string(), params.length));
    }
  }
  return params;
}

namespace {

class LayerNormF32 final : public BoundKernel {
 public:
  LayerNormF32(const LayerNormParams& params, LayerNormFn run) : params_(params), run_(run) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto [begin, end] = worker.share(params_.rows);
    const auto* x = static_cast<const float*>(operands.inputs[0]) + begin * params_.length;
    auto* y = static_cast<float*>(operands.outputs[0]) + begin * params_.length;
    const auto* bias = params_.has_bias ? static_cast<const float*>(operands.inputs[2]) : nullptr;
    run_({end - begin, params_.length, static_cast<const float*>(operands.inputs[1]), bias, params_.epsilon,
          params_.rms},
         x, y);
  }

 private:
  LayerNormParams params_;
  LayerNormFn run_;
};

template <class T>
class LayerNormReference final : public BoundKernel {
 public:
  explicit LayerNormReference(const LayerNormParams& params) : params_(params) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* scale = static_cast<const T*>(operands.inputs[1]);
    const auto* bias = params_.has_bias ? static_cast<const T*>(operands.inputs[2]) : nullptr;
    const int64_t n = params_.length;
    const auto [begin, end] = worker.share(params_.rows);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(operands.inputs[0]) + r * n;
      T* y = static_cast<T*>(operands.outputs[0]) + r * n;
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < n && !params_.rms; ++i) mean += static_cast<double>(x[i]) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        variance += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean) / static_cast<double>(n);
      }
      const double factor = 1 / std::sqrt(variance + static_cast<double>(params_.epsilon));
      for (int64_t i = 0; i < n; ++i) {
        const double value = (static_cast<double>(x[i]) - mean) * factor * static_cast<double>(scale[i]);
        y[i] = static_cast<T>(value + (bias ? static_cast<double>(bias[i]) : 0));
      }
    }
  }

 private:
  LayerNormParams params_;
};

Status accepts_f32(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(LayerNormParams::from(problem).status());
  return problem.inputs[0].dtype == DType::kFloat32 ? Status::ok() : unsupported("only f32");
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind_f32(const Problem& problem, const Machine& machine, int) {
  FW_RETURN_IF_ERROR(accepts_f32(problem, machine));
  LayerNormFn run = portable::layer_norm_rows;
#if defined(__x86_64__)
  if (kIsa == Isa::kAvx512) run = avx512::layer_norm_rows;
  if (kIsa == Isa::kAvx2) run = avx2::layer_norm_rows;
#endif
  return std::unique_ptr<BoundKernel>(std::make_unique<LayerNormF32>(LayerNormParams::from(problem).value(), run));
}

Status accepts_all(const Problem& problem, const Machine&) { return LayerNormParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind_reference(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(const LayerNormParams params, LayerNormParams::from(problem));
  if (problem.inputs[0].dtype == DType::kFloat64) {
    return std::unique_ptr<BoundKernel>(std::make_unique<LayerNormReference<double>>(params));
  }
  return std::unique_ptr<BoundKernel>(std::make_unique<LayerNormReference<float>>(params));
}

}  // namespace

#if defined(__x86_64__)
extern const Tactic layer_norm_f32_avx512;
constinit const Tactic layer_norm_f32_avx512{
    "layer_norm_f32_avx512", Family::kLayerNorm, Isa::kAvx512, accepts_f32, nullptr, bind_f32<Isa::kAvx512>};
extern const Tactic layer_norm_f32_avx2;
constinit const Tactic layer_norm_f32_avx2{"layer_norm_f32_avx2", Family::kLayerNorm, Isa::kAvx2, accepts_f32, nullptr,
                                           bind_f32<Isa::kAvx2>};
#endif
extern const Tactic layer_norm_f32_portable;
constinit const Tactic layer_norm_f32_portable{
    "layer_norm_f32_portable", Family::kLayerNorm, Isa::kPortable, accepts_f32, nullptr, bind_f32<Isa::kPortable>};
extern const Tactic layer_norm_reference;
constinit const Tactic layer_norm_reference{
    "layer_norm_reference", Family::kLayerNorm, Isa::kPortable, accepts_all, nullptr, bind_reference};

}  // namespace flywheel::kernels
