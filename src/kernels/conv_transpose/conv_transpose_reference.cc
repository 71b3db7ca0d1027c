// SPDX-License-Identifier: Apache-2.0
// conv_transpose's oracle. Gathers for each output element, so that every element is written once, in double precision.
#include "kernels/conv_transpose/conv_transpose.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

class ConvTransposeReference final : public BoundKernel {
 public:
  ConvTransposeReference(const Problem& problem, const ConvParams& params, ReferenceEpilogue epilogue)
      : p_(params), x_(problem.inputs[0]), y_(problem.outputs[0]), epilogue_(std::move(epilogue)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    x_.dtype == DType::kFloat64 ? run<double>(operands, worker) : run<float>(operands, worker);
  }

 private:
  template <class T>
  void run(const Operands& operands, const Worker& worker) const noexcept {
    const Worker::Range range = worker.share(y_.dims[0] * y_.dims[1]);
    for (int64_t row = range.begin; row < range.end; ++row) {
      int64_t index[4] = {row / y_.dims[1], row % y_.dims[1], 0, 0};
      for (index[3] = 0; index[3] < y_.dims[3]; ++index[3]) {
        for (index[2] = 0; index[2] < y_.dims[2]; ++index[2]) {
          epilogue_.store(operands, index, accumulate<T>(operands, index));
        }
      }
    }
  }

  template <class T>
  double accumulate(const Operands& operands, const int64_t* index) const noexcept {
    const int64_t channels = x_.dims[3] / p_.groups, group_outputs = y_.dims[3] / p_.groups;
    const int64_t group = index[3] / group_outputs, taps = p_.kernel_h * p_.kernel_w;
    const T* x = static_cast<const T*>(operands.inputs[0]) + index[0] * x_.strides[0] + group * channels;
    const T* w = static_cast<const T*>(operands.inputs[1]) +
                 (group * channels * group_outputs + index[3] - group * group_outputs) * taps;
    double sum = 0;
    for (int64_t r = 0; r < p_.kernel_h; ++r) {
      const int64_t up = index[1] + p_.pad_top - r * p_.dilation_h, i = up / p_.stride_h;
      if (up < 0 || up % p_.stride_h != 0 || i >= x_.dims[1]) continue;
      for (int64_t s = 0; s < p_.kernel_w; ++s) {
        const int64_t left = index[2] + p_.pad_left - s * p_.dilation_w, j = left / p_.stride_w;
        if (left < 0 || left % p_.stride_w != 0 || j >= x_.dims[2]) continue;
        const T* pixel = x + i * x_.strides[1] + j * x_.strides[2];
        const T* tap = w + r * p_.kernel_w + s;
        for (int64_t c = 0; c < channels; ++c) {
          sum += static_cast<double>(pixel[c]) * static_cast<double>(tap[c * group_outputs * taps]);
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
  FW_RETURN_IF_ERROR(conv_transpose_params(problem).status());
  return ReferenceEpilogue::from(problem, 2).status();
}

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(ConvParams params, conv_transpose_params(problem));
  FW_ASSIGN_OR_RETURN(ReferenceEpilogue epilogue, ReferenceEpilogue::from(problem, 2));
  return std::unique_ptr<BoundKernel>(std::make_unique<ConvTransposeReference>(problem, params, std::move(epilogue)));
}

}  // namespace

extern constinit const Tactic conv_transpose_reference{
    "conv_transpose_reference", Family::kConvTranspose, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
