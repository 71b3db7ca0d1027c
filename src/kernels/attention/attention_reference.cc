// SPDX-License-Identifier: Apache-2.0
// The oracle of family attention: the definition, in doubles, one query after the other.
#include <cmath>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

class AttentionReference final : public BoundKernel {
 public:
  AttentionReference(AttentionParams params, const Problem& problem, int workers)
      : params_(params),
        q_(problem.inputs[0]),
        k_(problem.inputs[1]),
        v_(problem.inputs[2]),
        y_(problem.outputs[0]),
        mask_(mask_strides(problem)),
        workers_(workers) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(params_.keys) * sizeof(double) * static_cast<size_t>(workers_);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    auto* scores = reinterpret_cast<double*>(operands.workspace) + params_.keys * worker.rank();
    const Worker::Range rows = worker.share(params_.batch * params_.heads * params_.queries);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t i = row % params_.queries, h = row / params_.queries % params_.heads,
                    b = row / params_.queries / params_.heads;
      attend(operands, b, h, i, scores);
    }
  }

 private:
  void attend(const Operands& operands, int64_t b, int64_t h, int64_t i, double* scores) const noexcept {
    auto row = [&](const TensorDesc& desc, const void* data, int64_t r) {
      return static_cast<const float*>(data) + b * desc.strides[0] + h * desc.strides[1] + r * desc.strides[2];
    };
    constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
    const float* q = row(q_, operands.inputs[0], i);
    double largest = kMinusInfinity;
    for (int64_t j = 0; j < params_.keys; ++j) {
      const float* k = row(k_, operands.inputs[1], j);
      double score = 0;
      for (int64_t d = 0; d < params_.head_dim; ++d) score += static_cast<double>(q[d]) * k[d];
      score *= params_.scale;
      const int64_t at = b * mask_.batch + h * mask_.head + i * mask_.query + j * mask_.key;
      if (params_.mask == MaskKind::kAdd) score += static_cast<const float*>(operands.inputs[3])[at];
      if (params_.mask == MaskKind::kKeep && !static_cast<const uint8_t*>(operands.inputs[3])[at])
        score = kMinusInfinity;
      if (params_.causal && j > i) score = kMinusInfinity;
      scores[j] = score;
      largest = std::isnan(score) || std::isnan(largest) ? std::nan("") : std::max(largest, score);
    }
    float* y = const_cast<float*>(row(y_, operands.outputs[0], i));
    const bool masked = largest == kMinusInfinity && params_.masked_rows_to_zero;
    double sum = 0;
    for (int64_t j = 0; j < params_.keys; ++j) {
      scores[j] = masked ? 0 : std::exp(scores[j] - largest);
      sum += scores[j];
    }
    for (int64_t d = 0; d < params_.value_dim; ++d) {
      double out = 0;
      for (int64_t j = 0; j < params_.keys; ++j) {
        if (!masked) out += scores[j] / sum * row(v_, operands.inputs[2], j)[d];
      }
      y[d] = static_cast<float>(out);
    }
  }

  AttentionParams params_;
  TensorDesc q_, k_, v_, y_;
  MaskStrides mask_;
  int workers_;
};

Status accepts(const Problem& problem, const Machine&) { return AttentionParams::from(problem).status(); }

Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine&, int workers) {
  FW_ASSIGN_OR_RETURN(AttentionParams params, AttentionParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<AttentionReference>(params, problem, workers));
}

}  // namespace

extern const Tactic attention_reference;
constinit const Tactic attention_reference{
    "attention_reference", Family::kAttention, Isa::kPortable, accepts, nullptr, bind};

}  // namespace flywheel::kernels
