// SPDX-License-Identifier: Apache-2.0
// matmul's oracle: any strides, batch broadcasting and epilogue. Floats accumulate in double precision; integers in 64
// bits, wrapping as ONNX's integer MatMul does.
#include <algorithm>
#include <type_traits>

#include "kernels/gemm/reference_epilogue.h"
#include "kernels/matmul/matmul.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kBlock = 64;  // columns accumulated at once

class MatMulReference final : public BoundKernel {
 public:
  MatMulReference(const Problem& problem, MatMulParams params, ReferenceEpilogue epilogue)
      : p_(std::move(params)),
        rank_(problem.outputs[0].rank()),
        dtype_(problem.inputs[0].dtype),
        a_(broadcast_strides(problem.inputs[0], rank_)),
        b_(broadcast_strides(problem.inputs[1], rank_)),
        batches_(element_count(p_.batch)),
        epilogue_(std::move(epilogue)) {}

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    switch (dtype_) {
      case DType::kFloat64: return run<double, double>(operands, worker);
      case DType::kInt32: return run<int32_t, uint64_t>(operands, worker);
      case DType::kInt64: return run<int64_t, uint64_t>(operands, worker);
      case DType::kUInt32: return run<uint32_t, uint64_t>(operands, worker);
      case DType::kUInt64: return run<uint64_t, uint64_t>(operands, worker);
      default: return run<float, double>(operands, worker);
    }
  }

 private:
  template <class T, class Sum>
  void run(const Operands& operands, const Worker& worker) const noexcept {
    const int64_t blocks = (p_.n + kBlock - 1) / kBlock;
    const Worker::Range range = worker.share(batches_ * p_.m * blocks);
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      int64_t index[kMaxRank];
      const int64_t n0 = unit % blocks * kBlock, columns = std::min(kBlock, p_.n - n0);
      int64_t rest = unit / blocks / p_.m, a_offset = 0, b_offset = 0;
      for (int d = rank_ - 3; d >= 0; rest /= p_.batch[d], --d) {
        index[d] = rest % p_.batch[d];
        a_offset += index[d] * a_[d];
        b_offset += index[d] * b_[d];
      }
      index[rank_ - 2] = unit / blocks % p_.m;
      const T* a = static_cast<const T*>(operands.inputs[0]) + a_offset + index[rank_ - 2] * a_[rank_ - 2];
      const T* b = static_cast<const T*>(operands.inputs[1]) + b_offset + n0 * b_[rank_ - 1];
      Sum sums[kBlock] = {};
      for (int64_t k = 0; k < p_.k; ++k, a += a_[rank_ - 1], b += b_[rank_ - 2]) {
        for (int64_t c = 0; c < columns; ++c) sums[c] += static_cast<Sum>(*a) * static_cast<Sum>(b[c * b_[rank_ - 1]]);
      }
      for (int64_t c = 0; c < columns; ++c) {
        index[rank_ - 1] = n0 + c;
        if constexpr (std::is_integral_v<T>) {
          epilogue_.store(operands, index, static_cast<double>(static_cast<T>(sums[c])));
        } else {
          epilogue_.store(operands, index, sums[c]);
        }
      }
    }
  }

  MatMulParams p_;
  int rank_;
  DType dtype_;
  std::array<int64_t, kMaxRank> a_, b_;
  int64_t batches_;
  ReferenceEpilogue epilogue_;
};

Status accepts(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(MatMulParams::from(problem).status());
  return ReferenceEpilogue::from(problem, 2).status();
}

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int) {
  FW_ASSIGN_OR_RETURN(MatMulParams params, MatMulParams::from(problem));
  FW_ASSIGN_OR_RETURN(ReferenceEpilogue epilogue, ReferenceEpilogue::from(problem, 2));
  return std::unique_ptr<BoundKernel>(
      std::make_unique<MatMulReference>(problem, std::move(params), std::move(epilogue)));
}

}  // namespace

extern constinit const Tactic matmul_reference{
    "matmul_reference", Family::kMatMul, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
