// SPDX-License-Identifier: Apache-2.0
// Depthwise conv in f32 on every ISA: one filter a channel, any kernel, stride, dilation and padding. Weights are
// packed as [tap][channel], padded to whole vectors. Channels are taken in blocks whose input rows stay in L2 from one
// output row to the next.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/conv/conv.h"
#include "kernels/conv/depthwise_kernel.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/tap_ranges.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kMaxTaps = 4096;
constexpr int64_t kMaxBlock = 128;  // channels: bounds the scratch of unfused epilogues

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Depthwise final : public BoundKernel {
 public:
  Depthwise(const Problem& problem, const ConvParams& params, Epilogue epilogue, const Machine& machine, Isa isa,
            int workers)
      : p_(params), epilogue_(std::move(epilogue)), kernels_(&depthwise_kernels(isa)) {
    const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
    x_ = view_of(x, 4);
    y_ = view_of(y, 4);
    // An extent of 1 has no stride in a broadcast view; x and y never broadcast.
    images_ = y.dims[0];
    rows_ = y.dims[1];
    channels_ = y.dims[3];
    padded_ = ceil_div(channels_, kernels_->lanes) * kernels_->lanes;
    down_ = tap_ranges({y.dims[1], x.dims[1], p_.kernel_h, p_.stride_h, p_.pad_top, p_.dilation_h});
    cut_rows(y.dims[2], x.dims[2]);
    const int64_t line_bytes = std::max<int64_t>(1, x.dims[2] * p_.kernel_h) * 4;
    block_ = std::clamp<int64_t>(machine.l2_bytes / 2 / line_bytes, kernels_->lanes, kMaxBlock);
    // Rows are shared out first: neighbouring steps of a model then find their rows in their own core's cache. Where
    // rows are few, channels are shared out too, in cache lines that no two workers write.
    split_rows_ = std::gcd(workers, static_cast<int>(std::min<int64_t>(images_ * rows_ / 4, workers)));
    if (split_rows_ < 1) split_rows_ = 1;
    split_channels_ = workers / split_rows_;
    const int64_t least = std::max<int64_t>(kernels_->lanes, 16);
    const int64_t share = ceil_div(ceil_div(channels_, split_channels_), least) * least;
    blocks_ = ceil_div(channels_, std::min(block_, share));
    block_ = std::min(kMaxBlock, ceil_div(ceil_div(channels_, blocks_), least) * least);
    blocks_ = ceil_div(channels_, block_);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const int row_part = worker.rank() % split_rows_, channel_part = worker.rank() / split_rows_;
    const int64_t all = images_ * rows_;
    const int64_t begin = all * row_part / split_rows_, end = all * (row_part + 1) / split_rows_;
    const int64_t first = blocks_ * channel_part / split_channels_,
                  last = blocks_ * (channel_part + 1) / split_channels_;
    for (int64_t block = first; block < last; ++block) {
      const int64_t c0 = block * block_, c1 = std::min(channels_, c0 + block_);
      for (int64_t row = begin; row < end; ++row) run_row(operands, row / rows_, row % rows_, c0, c1);
    }
  }

 private:
  struct Segment {
    int64_t first, pixels;
    std::vector<int8_t> inside;  // see DepthwiseArgs
  };

  void run_row(const Operands& operands, int64_t image, int64_t y, int64_t c0, int64_t c1) const noexcept {
    const TapRange& ky =
        *std::find_if(down_.begin(), down_.end(), [&](const TapRange& range) { return y < range.end; });
    for (const Segment& segment : segments_) run_segment(operands, image, y, segment, ky, c0, c1);
  }

  // A row's pixels in segments of nearly equal length, each with the pixels for which a kernel column is inside the
  // input.
  void cut_rows(int64_t columns, int64_t in_columns) {
    const int64_t count = ceil_div(columns, kMaxDepthwisePixels);
    for (int64_t s = 0; s < count; ++s) {
      Segment segment{s * columns / count, 0, {}};
      segment.pixels = (s + 1) * columns / count - segment.first;
      for (int64_t tap = 0; tap < p_.kernel_w; ++tap) {
        int64_t begin = segment.pixels, end = 0;
        for (int64_t i = 0; i < segment.pixels; ++i) {
          const int64_t x = (segment.first + i) * p_.stride_w + tap * p_.dilation_w - p_.pad_left;
          if (x < 0 || x >= in_columns) continue;
          begin = std::min(begin, i);
          end = i + 1;
        }
        segment.inside.push_back(static_cast<int8_t>(begin));
        segment.inside.push_back(static_cast<int8_t>(end));
      }
      segments_.push_back(std::move(segment));
    }
  }

  void run_segment(const Operands& operands, int64_t image, int64_t y, const Segment& segment, const TapRange& ky,
                   int64_t c0, int64_t c1) const noexcept {
    const int64_t x0 = segment.first, pixels = segment.pixels;
    DepthwiseArgs args{};
    args.taps_y = ky.last - ky.first;
    args.taps_x = p_.kernel_w;
    args.inside = segment.inside.data();
    args.x_step = p_.stride_w * x_.column;
    args.x_tap_y = p_.dilation_h * x_.row;
    args.x_tap_x = p_.dilation_w * x_.column;
    args.w_tap_y = p_.kernel_w * padded_;
    args.w_tap_x = padded_;
    const int64_t in_y = y * p_.stride_h + ky.first * p_.dilation_h - p_.pad_top;
    const int64_t in_x = x0 * p_.stride_w - p_.pad_left;
    const float* x =
        static_cast<const float*>(operands.inputs[0]) + image * x_.image + in_y * x_.row + in_x * x_.column;
    const float* w = reinterpret_cast<const float*>(operands.packed) + ky.first * p_.kernel_w * padded_;
    float* out = static_cast<float*>(operands.outputs[0]) + y_.at(image, y, x0, c0);
    const auto operand = [&](int index, int64_t c) {
      return static_cast<const float*>(operands.inputs[2 + index]) + epilogue_.operands[index].at(image, y, x0, c);
    };
    alignas(64) float scratch[kMaxDepthwisePixels * kMaxBlock];
    args.clamp = epilogue_.fused && epilogue_.clamp;
    args.low = epilogue_.low;
    args.high = epilogue_.high;
    args.out_step = epilogue_.fused ? y_.column : block_;
    float* target = epilogue_.fused ? out : scratch;
    for (int64_t c = c0; c < c1; c += kernels_->lanes) {
      args.lanes = static_cast<int32_t>(std::min<int64_t>(kernels_->lanes, c1 - c));
      args.x = x + c;
      args.w = w + c;
      args.out = target + (c - c0);
      if (epilogue_.fused && epilogue_.bias >= 0) args.bias = operand(epilogue_.bias, c);
      if (epilogue_.fused && epilogue_.residual >= 0) {
        args.residual = operand(epilogue_.residual, c);
        args.residual_step = epilogue_.operands[epilogue_.residual].column;
      }
      (args.lanes == kernels_->lanes ? kernels_->whole : kernels_->partial)[pixels](args);
    }
    if (epilogue_.fused) return;
    TileOperand tile[kMaxRegisters];
    tile[0] = {scratch, block_, 1};
    for (size_t i = 0; i < epilogue_.operands.size(); ++i) {
      tile[i + 1] = {operand(static_cast<int>(i), c0), epilogue_.operands[i].column, epilogue_.operands[i].channel};
    }
    epilogue_.run(epilogue_.program, tile, pixels, c1 - c0, out, y_.column);
  }

  ConvParams p_;
  Epilogue epilogue_;
  const DepthwiseKernels* kernels_;
  View x_, y_;
  int64_t images_, rows_, channels_, padded_, block_, blocks_;
  int split_rows_, split_channels_;
  std::vector<TapRange> down_;
  std::vector<Segment> segments_;
};

int64_t padded_channels(int64_t channels, Isa isa) {
  const int64_t lanes = depthwise_kernels(isa).lanes;
  return ceil_div(channels, lanes) * lanes;
}

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  const Dims& w = problem.inputs[1].dims;
  if (w[1] != 1 || w[0] != params.groups) {
    return unsupported(fmt::format("not depthwise: {} groups, weights {}", params.groups, dims_to_string(w)));
  }
  if (problem.constant.size() < 2 || !problem.constant[1]) {
    return unsupported("conv packs W at build time, so W must be constant");
  }
  if (params.kernel_h * params.kernel_w > kMaxTaps) {
    return unsupported(
        fmt::format("a kernel of {}x{} has more than {} taps", params.kernel_h, params.kernel_w, kMaxTaps));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  const int64_t channels = params.groups, taps = params.kernel_h * params.kernel_w,
                padded = padded_channels(channels, kIsa);
  FW_ASSIGN_OR_RETURN(AlignedBuffer packed,
                      AlignedBuffer::allocate(static_cast<size_t>(taps) * static_cast<size_t>(padded) * sizeof(float),
                                              "packed depthwise weights"));
  const float* w = static_cast<const float*>(constants[1]);
  float* out = reinterpret_cast<float*>(packed.data());
  for (int64_t t = 0; t < taps; ++t) {
    for (int64_t c = 0; c < channels; ++c) out[t * padded + c] = w[c * taps + t];
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
  return std::unique_ptr<BoundKernel>(
      std::make_unique<Depthwise>(problem, params, std::move(epilogue), machine, kIsa, workers));
}

template <Isa kIsa>
uint64_t packed_bytes(const Problem& problem) {
  const Result<ConvParams> params = ConvParams::from(problem);
  if (!params.is_ok()) return 0;
  return static_cast<uint64_t>(params->kernel_h * params->kernel_w * padded_channels(params->groups, kIsa)) *
         sizeof(float);
}

template <Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kConv, kIsa, accepts<kIsa>, pack<kIsa>, bind<kIsa>, packed_bytes<kIsa>};
}

}  // namespace

namespace avx512 {
extern const DepthwiseKernels kDepthwiseKernels;
}
namespace avx2 {
extern const DepthwiseKernels kDepthwiseKernels;
}
namespace portable {
extern const DepthwiseKernels kDepthwiseKernels;
}

const DepthwiseKernels& depthwise_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::kDepthwiseKernels;
  if (isa == Isa::kAvx2) return avx2::kDepthwiseKernels;
#endif
  (void)isa;
  return portable::kDepthwiseKernels;
}

#if defined(__x86_64__)
extern constinit const Tactic conv_depthwise_avx512 = tactic<Isa::kAvx512>("conv_f32_depthwise_avx512");
extern constinit const Tactic conv_depthwise_avx2 = tactic<Isa::kAvx2>("conv_f32_depthwise_avx2");
#endif
extern constinit const Tactic conv_depthwise_portable = tactic<Isa::kPortable>("conv_f32_depthwise_portable");

}  // namespace flywheel::kernels
