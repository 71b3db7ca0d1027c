// SPDX-License-Identifier: Apache-2.0
// conv in f32 on every ISA, as an implicit matrix product straight from NHWC: any kernel, stride, dilation, padding and
// groups. Weights are packed in panels of output channels, each line one (kernel row, kernel column, channel).
#include <fmt/format.h>

#include "kernels/conv/conv.h"
#include "kernels/gemm/implicit_gemm.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kMaxRanges = 4096;  // kernel taps: bounds the rectangles that borders cut the output into

ContractionShape shape_of(const Problem& problem, const ConvParams& p) {
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  ContractionShape shape;
  shape.images = y.dims[0];
  shape.rows = y.dims[1];
  shape.columns = y.dims[2];
  shape.channels = y.dims[3] / p.groups;
  shape.groups = p.groups;
  shape.depth = x.dims[3] / p.groups;
  shape.in_rows = x.dims[1];
  shape.in_columns = x.dims[2];
  shape.input = {0, x.strides[0], x.strides[1], x.strides[2], 1};
  shape.output = {0, y.strides[0], y.strides[1], y.strides[2], 1};
  shape.kernel_h = p.kernel_h;
  shape.kernel_w = p.kernel_w;
  shape.stride_h = p.stride_h;
  shape.stride_w = p.stride_w;
  shape.pad_top = p.pad_top;
  shape.pad_left = p.pad_left;
  shape.dilation_h = p.dilation_h;
  shape.dilation_w = p.dilation_w;
  return shape;
}

// Floats of all groups' panels, or nullopt when they overflow.
std::optional<int64_t> packed_floats(const ContractionShape& shape, Isa isa) {
  const std::optional<int64_t> group = ImplicitGemm::panels(shape, isa).size();
  int64_t floats = 0, bytes = 0;
  if (!group || __builtin_mul_overflow(*group, shape.groups, &floats) || __builtin_mul_overflow(floats, 4, &bytes))
    return {};
  return floats;
}

class ConvF32 final : public BoundKernel {
 public:
  explicit ConvF32(ImplicitGemm gemm) : gemm_(std::move(gemm)) {}
  void launch(const Operands& operands, Worker& worker) const noexcept override {
    gemm_.run(static_cast<const float*>(operands.inputs[0]), reinterpret_cast<const float*>(operands.packed),
              static_cast<float*>(operands.outputs[0]), operands.inputs + 2, operands.workspace, worker);
  }
  size_t workspace_bytes() const override { return gemm_.workspace_bytes(); }

 private:
  ImplicitGemm gemm_;
};

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  if (problem.constant.size() < 2 || !problem.constant[1]) {
    return unsupported("conv packs W at build time, so W must be constant");
  }
  const Dims& w = problem.inputs[1].dims;
  if (params.groups > 1 && w[1] == 1 && params.groups == w[0]) {
    return unsupported("a depthwise convolution has one product a channel and tap: nothing for a matrix kernel");
  }
  if (params.kernel_h > kMaxRanges / params.kernel_w) {
    return unsupported(
        fmt::format("a kernel of {}x{} cuts the output into too many parts", params.kernel_h, params.kernel_w));
  }
  if (!packed_floats(shape_of(problem, params), kIsa)) {
    return unsupported(fmt::format("conv's weights {} are too large to pack", dims_to_string(w)));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  const ContractionShape shape = shape_of(problem, params);
  const Panels panels = ImplicitGemm::panels(shape, kIsa);
  const std::optional<int64_t> floats = packed_floats(shape, kIsa);
  if (!floats) return out_of_memory("conv's packed weights exceed 2^63 bytes");
  FW_ASSIGN_OR_RETURN(AlignedBuffer packed,
                      AlignedBuffer::allocate(static_cast<size_t>(*floats) * sizeof(float), "packed conv weights"));
  const int64_t taps = params.kernel_h * params.kernel_w;
  PanelSource source;
  source.column_stride = shape.depth * taps;
  source.depth = shape.depth;
  source.depth_stride = taps;
  source.taps.resize(static_cast<size_t>(taps));
  for (int64_t t = 0; t < taps; ++t) source.taps[static_cast<size_t>(t)] = t;
  for (int64_t g = 0; g < params.groups; ++g) {
    source.data = static_cast<const float*>(constants[1]) + g * shape.channels * source.column_stride;
    pack_panels(panels, source, 0, panels.count(),
                reinterpret_cast<float*>(packed.data()) + g * (*floats / params.groups));
  }
  consumed.assign(problem.inputs.size(), false);
  consumed[1] = true;
  return packed;
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts<kIsa>(problem, machine));
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  FW_ASSIGN_OR_RETURN(Epilogue epilogue, Epilogue::from(problem, 2, kIsa));
  return std::unique_ptr<BoundKernel>(std::make_unique<ConvF32>(
      ImplicitGemm::create(shape_of(problem, params), std::move(epilogue), machine, kIsa, workers)));
}

template <Isa kIsa>
uint64_t packed_bytes(const Problem& problem) {
  const Result<ConvParams> params = ConvParams::from(problem);
  if (!params.is_ok()) return 0;
  return static_cast<uint64_t>(packed_floats(shape_of(problem, *params), kIsa).value_or(0)) * sizeof(float);
}

template <Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kConv, kIsa, accepts<kIsa>, pack<kIsa>, bind<kIsa>, packed_bytes<kIsa>};
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic conv_f32_avx512 = tactic<Isa::kAvx512>("conv_f32_14x32_avx512");
extern constinit const Tactic conv_f32_avx2 = tactic<Isa::kAvx2>("conv_f32_6x16_avx2");
#endif
extern constinit const Tactic conv_f32_portable = tactic<Isa::kPortable>("conv_f32_6x8_portable");

}  // namespace flywheel::kernels
