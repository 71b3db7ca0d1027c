// SPDX-License-Identifier: Apache-2.0
// resize in f32: taps of rows and columns are worked out when shapes are bound; output rows are shared out. Nearest
// copies pixels and needs no instruction set; linear and cubic blend them.
#include <cstring>

#include "kernels/resize/resize.h"
#include "kernels/resize/resize_taps.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

using BlendFn = void (*)(const WeightedPixels&);

class ResizeF32 final : public BoundKernel {
 public:
  ResizeF32(const ResizeParams& params, const Problem& problem, BlendFn blend)
      : x_(problem.inputs[0]),
        y_(problem.outputs[0]),
        rows_(resize_taps(params, params.scale_h, x_.dims[1], y_.dims[1])),
        columns_(resize_taps(params, params.scale_w, x_.dims[2], y_.dims[2])),
        blend_(blend) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const auto* x = static_cast<const float*>(operands.inputs[0]);
    auto* y = static_cast<float*>(operands.outputs[0]);
    const Worker::Range range = worker.share(y_.dims[0] * y_.dims[1]);
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t n = row / y_.dims[1], oy = row % y_.dims[1];
      const ResizeTaps& down = rows_[static_cast<size_t>(oy)];
      const float* image = x + n * x_.strides[0];
      float* out = y + n * y_.strides[0] + oy * y_.strides[1];
      for (int64_t ox = 0; ox < y_.dims[2]; ++ox, out += y_.strides[2]) {
        const ResizeTaps& across = columns_[static_cast<size_t>(ox)];
        if (down.count * across.count == 1) {
          std::memcpy(out, image + down.index[0] * x_.strides[1] + across.index[0] * x_.strides[2],
                      static_cast<size_t>(y_.dims[3]) * 4);
          continue;
        }
        WeightedPixels pixels{};
        for (int r = 0; r < down.count; ++r) {
          for (int s = 0; s < across.count; ++s) {
            pixels.pixel[pixels.count] = image + down.index[r] * x_.strides[1] + across.index[s] * x_.strides[2];
            pixels.weight[pixels.count++] = down.weight[r] * across.weight[s];
          }
        }
        pixels.channels = y_.dims[3];
        pixels.out = out;
        blend_(pixels);
      }
    }
  }

 private:
  TensorDesc x_, y_;
  std::vector<ResizeTaps> rows_, columns_;
  BlendFn blend_;
};

void blend_reference(const WeightedPixels& p) {
  for (int64_t c = 0; c < p.channels; ++c) {
    double sum = 0;
    for (int i = 0; i < p.count; ++i) sum += static_cast<double>(p.pixel[i][c]) * p.weight[i];
    p.out[c] = static_cast<float>(sum);
  }
}

Status accepts(const Problem& problem, const Machine&) { return ResizeParams::from(problem).status(); }

template <BlendFn kBlend>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(ResizeParams params, ResizeParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<ResizeF32>(params, problem, kBlend));
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic resize_f32_avx512{
    "resize_f32_avx512", Family::kResize, Isa::kAvx512, accepts, nullptr, bind<avx512::blend_pixels>};
extern constinit const Tactic resize_f32_avx2{"resize_f32_avx2", Family::kResize, Isa::kAvx2,
                                              accepts,           nullptr,         bind<avx2::blend_pixels>};
#endif
extern constinit const Tactic resize_f32_portable{
    "resize_f32_portable", Family::kResize, Isa::kPortable, accepts, nullptr, bind<portable::blend_pixels>};
extern constinit const Tactic resize_reference{"resize_reference",   Family::kResize, Isa::kPortable, accepts, nullptr,
                                               bind<blend_reference>};

}  // namespace flywheel::kernels
