// SPDX-License-Identifier: Apache-2.0
// conv_transpose in f32 on every ISA. The output pixels of one remainder modulo the strides are a plain convolution of
// stride 1 with every stride-th tap, in reverse order: each such phase is one implicit matrix product that writes its
// own pixels, so that nothing is scattered or added up in memory. A 2x2 kernel of stride 2 is four products of one tap.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/conv_transpose/conv_transpose.h"
#include "kernels/gemm/implicit_gemm.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kMaxPhases = 64;
constexpr int64_t kMaxTaps = 4096;

// One axis of one phase: output position = stride * q + phase reads input q - pad + t * dilation through tap
// first_tap - t * tap_step, for t in [0, taps).
struct PhaseAxis {
  int64_t outputs = 0, taps = 0, first_tap = 0, tap_step = 1, dilation = 1, pad = 0;
};

PhaseAxis phase_axis(int64_t phase, int64_t outputs, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  PhaseAxis axis;
  axis.outputs = outputs > phase ? (outputs - phase + stride - 1) / stride : 0;
  const int64_t common = std::gcd(stride, dilation);
  axis.tap_step = stride / common;
  axis.dilation = dilation / common;
  int64_t first = 0;  // the least tap r with (phase + pad - r * dilation) divisible by the stride
  while (first < kernel && first < axis.tap_step && (phase + pad - first * dilation) % stride != 0) ++first;
  if (first >= kernel || (phase + pad - first * dilation) % stride != 0) return axis;
  axis.taps = (kernel - 1 - first) / axis.tap_step + 1;
  axis.first_tap = first + (axis.taps - 1) * axis.tap_step;
  axis.pad = (axis.taps - 1) * axis.dilation - (phase + pad - first * dilation) / stride;
  return axis;
}

struct Phase {
  int64_t y, x;
  PhaseAxis down, across;
  ContractionShape shape;
};

View phase_view(const View& view, const Phase& phase, const ConvParams& p) {
  return {view.offset + phase.y * view.row + phase.x * view.column, view.image, view.row * p.stride_h,
          view.column * p.stride_w, view.channel};
}

std::vector<Phase> phases_of(const Problem& problem, const ConvParams& p) {
  const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
  std::vector<Phase> phases;
  for (int64_t py = 0; py < p.stride_h; ++py) {
    for (int64_t px = 0; px < p.stride_w; ++px) {
      Phase phase{py,
                  px,
                  phase_axis(py, y.dims[1], p.kernel_h, p.stride_h, p.pad_top, p.dilation_h),
                  phase_axis(px, y.dims[2], p.kernel_w, p.stride_w, p.pad_left, p.dilation_w),
                  {}};
      if (phase.down.taps == 0 || phase.across.taps == 0) phase.down.taps = phase.across.taps = 0;
      ContractionShape& s = phase.shape;
      s.images = y.dims[0];
      s.rows = phase.down.outputs;
      s.columns = phase.across.outputs;
      s.channels = y.dims[3] / p.groups;
      s.groups = p.groups;
      s.depth = x.dims[3] / p.groups;
      s.in_rows = x.dims[1];
      s.in_columns = x.dims[2];
      s.input = {0, x.strides[0], x.strides[1], x.strides[2], 1};
      s.output = phase_view({0, y.strides[0], y.strides[1], y.strides[2], 1}, phase, p);
      s.kernel_h = phase.down.taps;
      s.kernel_w = phase.across.taps;
      s.pad_top = phase.down.pad;
      s.pad_left = phase.across.pad;
      s.dilation_h = phase.down.dilation;
      s.dilation_w = phase.across.dilation;
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

// Floats of all groups' panels of one phase, or nullopt when they overflow.
std::optional<int64_t> packed_floats(const ContractionShape& shape, Isa isa) {
  const std::optional<int64_t> group = ImplicitGemm::panels(shape, isa).size();
  int64_t floats = 0;
  if (!group || __builtin_mul_overflow(*group, shape.groups, &floats)) return {};
  return floats;
}

std::optional<int64_t> packed_floats(const std::vector<Phase>& phases, Isa isa) {
  int64_t sum = 0, bytes = 0;
  for (const Phase& phase : phases) {
    const std::optional<int64_t> floats = packed_floats(phase.shape, isa);
    if (!floats || __builtin_add_overflow(sum, *floats, &sum) || __builtin_mul_overflow(sum, 4, &bytes)) return {};
  }
  return sum;
}

class ConvTransposeF32 final : public BoundKernel {
 public:
  void add(ImplicitGemm gemm, int64_t packed_offset) {
    parts_.push_back({std::move(gemm), packed_offset, static_cast<int64_t>(workspace_bytes_)});
    workspace_bytes_ += (parts_.back().gemm.workspace_bytes() + 63) / 64 * 64;
  }
  void launch(const Operands& operands, Worker& worker) const noexcept override {
    for (const Part& part : parts_) {
      part.gemm.run(static_cast<const float*>(operands.inputs[0]),
                    reinterpret_cast<const float*>(operands.packed) + part.packed_offset,
                    static_cast<float*>(operands.outputs[0]), operands.inputs + 2,
                    operands.workspace + part.workspace_offset, worker);
    }
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

 private:
  struct Part {
    ImplicitGemm gemm;
    int64_t packed_offset, workspace_offset;
  };
  std::vector<Part> parts_;
  size_t workspace_bytes_ = 0;  // one part after the other: workers may be in different ones
};

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(ConvParams params, conv_transpose_params(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  if (problem.constant.size() < 2 || !problem.constant[1]) {
    return unsupported("conv_transpose packs W at build time, so W must be constant");
  }
  if (params.stride_h > kMaxPhases / params.stride_w) {
    return unsupported(
        fmt::format("strides {}x{} make more than {} phases", params.stride_h, params.stride_w, kMaxPhases));
  }
  if (params.kernel_h > kMaxTaps / params.kernel_w) {
    return unsupported(
        fmt::format("a kernel of {}x{} cuts the output into too many parts", params.kernel_h, params.kernel_w));
  }
  if (!packed_floats(phases_of(problem, params), kIsa)) {
    return unsupported(
        fmt::format("conv_transpose's weights {} are too large to pack", dims_to_string(problem.inputs[1].dims)));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  FW_ASSIGN_OR_RETURN(ConvParams params, conv_transpose_params(problem));
  const std::vector<Phase> phases = phases_of(problem, params);
  const std::optional<int64_t> floats = packed_floats(phases, kIsa);
  if (!floats) return out_of_memory("conv_transpose's packed weights exceed 2^63 bytes");
  FW_ASSIGN_OR_RETURN(AlignedBuffer packed, AlignedBuffer::allocate(static_cast<size_t>(*floats) * sizeof(float),
                                                                    "packed conv_transpose weights"));
  float* out = reinterpret_cast<float*>(packed.data());
  const int64_t taps = params.kernel_h * params.kernel_w;
  for (const Phase& phase : phases) {
    const ContractionShape& shape = phase.shape;
    const Panels panels = ImplicitGemm::panels(shape, kIsa);
    PanelSource source;
    source.column_stride = taps;
    source.depth = shape.depth;
    source.depth_stride = shape.channels * taps;
    source.taps.clear();
    for (int64_t r = 0; r < phase.down.taps; ++r) {
      for (int64_t s = 0; s < phase.across.taps; ++s) {
        source.taps.push_back((phase.down.first_tap - r * phase.down.tap_step) * params.kernel_w +
                              phase.across.first_tap - s * phase.across.tap_step);
      }
    }
    for (int64_t g = 0; g < params.groups; ++g) {
      source.data = static_cast<const float*>(constants[1]) + g * shape.depth * source.depth_stride;
      pack_panels(panels, source, 0, panels.count(), out);
      out += panels.size().value_or(0);
    }
  }
  consumed.assign(problem.inputs.size(), false);
  consumed[1] = true;
  return packed;
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts<kIsa>(problem, machine));
  FW_ASSIGN_OR_RETURN(ConvParams params, conv_transpose_params(problem));
  FW_ASSIGN_OR_RETURN(const Epilogue whole, Epilogue::from(problem, 2, kIsa));
  auto kernel = std::make_unique<ConvTransposeF32>();
  int64_t offset = 0;
  for (const Phase& phase : phases_of(problem, params)) {
    Epilogue epilogue = whole;
    for (View& view : epilogue.operands) view = phase_view(view, phase, params);
    kernel->add(ImplicitGemm::create(phase.shape, std::move(epilogue), machine, kIsa, workers), offset);
    offset += packed_floats(phase.shape, kIsa).value_or(0);
  }
  return std::unique_ptr<BoundKernel>(std::move(kernel));
}

template <Isa kIsa>
uint64_t packed_bytes(const Problem& problem) {
  const Result<ConvParams> params = conv_transpose_params(problem);
  if (!params.is_ok()) return 0;
  return static_cast<uint64_t>(packed_floats(phases_of(problem, *params), kIsa).value_or(0)) * sizeof(float);
}

template <Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kConvTranspose, kIsa, accepts<kIsa>, pack<kIsa>, bind<kIsa>, packed_bytes<kIsa>};
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic conv_transpose_f32_avx512 = tactic<Isa::kAvx512>("conv_transpose_f32_14x32_avx512");
extern constinit const Tactic conv_transpose_f32_avx2 = tactic<Isa::kAvx2>("conv_transpose_f32_6x16_avx2");
#endif
extern constinit const Tactic conv_transpose_f32_portable = tactic<Isa::kPortable>("conv_transpose_f32_6x8_portable");

}  // namespace flywheel::kernels
