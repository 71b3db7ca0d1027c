// SPDX-License-Identifier: Apache-2.0
// conv's oracle: any groups, strides, dilations and epilogue, accumulated in double precision.
#include <algorithm>

#include "kernels/conv/conv.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

class ConvReference final : public BoundKernel {
 public:
  ConvReference(const Problem& problem, const ConvParams& params, ReferenceEpilogue epilogue)
      : p_(params), x_(problem.inputs[0]), y_(problem.outputs[0]), epilogue_(std::move(epilogue)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    x_.dtype == DType::kFloat64 ? run<double>(operands, worker) : run<float>(operands, worker);
  }

 private:
  template <class T>
  void run(const Operands& operands, const Worker& worker) const noexcept {
    const int64_t rows = y_.dims[0] * y_.dims[1], group_outputs = y_.dims[3] / p_.groups;
    const Worker::Range range = worker.share(rows);
    for (int64_t row = range.begin; row < range.end; ++row) {
      int64_t index[4] = {row / y_.dims[1], row % y_.dims[1], 0, 0};
      for (index[3] = 0; index[3] < y_.dims[3]; ++index[3]) {
        const int64_t group = index[3] / group_outputs;
        for (index[2] = 0; index[2] < y_.dims[2]; ++index[2]) {
          epilogue_.store(operands, index, accumulate<T>(operands, index, group));
        }
      }
    }
  }

  template <class T>
  double accumulate(const Operands& operands, const int64_t* index, int64_t group) const noexcept {
    const int64_t channels = x_.dims[3] / p_.groups, taps = p_.kernel_h * p_.kernel_w;
    const T* x = static_cast<const T*>(operands.inputs[0]) + index[0] * x_.strides[0] + group * channels;
    const T* w = static_cast<const T*>(operands.inputs[1]) + index[3] * channels * taps;
    double sum = 0;
    for (int64_t r = 0; r < p_.kernel_h; ++r) {
      const int64_t i = index[1] * p_.stride_h + r * p_.dilation_h - p_.pad_top;
      if (i < 0 || i >= x_.dims[1]) continue;
      for (int64_t s = 0; s < p_.kernel_w; ++s) {
        const int64_t j = index[2] * p_.stride_w + s * p_.dilation_w - p_.pad_left;
        if (j < 0 || j >= x_.dims[2]) continue;
        const T* pixel = x + i * x_.strides[1] + j * x_.strides[2];
        const T* tap = w + r * p_.kernel_w + s;
        for (int64_t c = 0; c < channels; ++c) {
          sum += static_cast<double>(pixel[c]) * static_cast<double>(tap[c * taps]);
        }
      }
    }
    return sum;
  }

  ConvParams p_;
  TensorDesc x_, y_;
  ReferenceEpilogue epilogue_;
};

Status accepts(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(ConvParams::from(problem).status());
  return ReferenceEpilogue::from(problem, 2).status();
}

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  FW_ASSIGN_OR_RETURN(ReferenceEpilogue epilogue, ReferenceEpilogue::from(problem, 2));
  return std::unique_ptr<BoundKernel>(std::make_unique<ConvReference>(problem, params, std::move(epilogue)));
}

}  // namespace

extern constinit const Tactic conv_reference{"conv_reference", Family::kConv, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
