// SPDX-License-Identifier: Apache-2.0
// gemm's oracle: any types and strides that GemmParams allows, accumulated in double precision.
#include <algorithm>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kBlock = 64;  // columns accumulated at once, so that B is read along its rows

class GemmReference final : public BoundKernel {
 public:
  GemmReference(const Problem& problem, const GemmParams& params, ReferenceEpilogue epilogue)
      : params_(params),
        dtype_(problem.inputs[0].dtype),
        lda_(problem.inputs[0].strides[0]),
        epilogue_(std::move(epilogue)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    dtype_ == DType::kFloat64 ? run<double>(operands, worker) : run<float>(operands, worker);
  }

 private:
  template <class T>
  void run(const Operands& operands, const Worker& worker) const noexcept {
    const T* a = static_cast<const T*>(operands.inputs[0]);
    const T* b = static_cast<const T*>(operands.inputs[1]);
    const int64_t blocks = (params_.n + kBlock - 1) / kBlock;
    const Worker::Range range = worker.share(params_.m * blocks);
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      const int64_t m = unit / blocks, n0 = unit % blocks * kBlock, columns = std::min(kBlock, params_.n - n0);
      double sums[kBlock] = {};
      for (int64_t k = 0; k < params_.k; ++k) {
        const double x = static_cast<double>(a[m * lda_ + k]);
        const T* row = params_.trans_b ? b + n0 * params_.k + k : b + k * params_.n + n0;
        const int64_t step = params_.trans_b ? params_.k : 1;
        for (int64_t c = 0; c < columns; ++c) sums[c] += x * static_cast<double>(row[c * step]);
      }
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t index[2] = {m, n0 + c};
        epilogue_.store(operands, index, sums[c]);
      }
    }
  }

  GemmParams params_;
  DType dtype_;
  int64_t lda_;
  ReferenceEpilogue epilogue_;
};

Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(GemmParams params, GemmParams::from(problem));
  (void)params;
  return ReferenceEpilogue::from(problem, 2).status();
}

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(GemmParams params, GemmParams::from(problem));
  FW_ASSIGN_OR_RETURN(ReferenceEpilogue epilogue, ReferenceEpilogue::from(problem, 2));
  return std::unique_ptr<BoundKernel>(std::make_unique<GemmReference>(problem, params, std::move(epilogue)));
}

}  // namespace

extern constinit const Tactic gemm_reference{"gemm_reference", Family::kGemm, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
