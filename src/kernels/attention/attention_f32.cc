// SPDX-License-Identifier: Apache-2.0
// attention in f32 on every ISA. For each (batch, head): K transposed and V packed in panels once, then block after
// block of queries: scores by the tile kernels of gemm, rows to probabilities, product with V by the same kernels
// straight into the output. A block's scores stay in L2; the whole matrix is never in memory. Workers share out (batch,
// head, block) in order, so that most pack each head once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/gemm/panels.h"
#include "kernels/gemm/tile_kernel.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int64_t kScoreBytes = 256 << 10;  // of a block: a quarter of L2
constexpr int64_t kMaxBlock = 56;           // queries

struct RowFunctions {
  void (*to_probabilities)(const ScoreRow&);
  void (*pack_transposed)(const float*, int64_t, int64_t, int64_t, int64_t, float*);
};

RowFunctions row_functions(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return {avx512::score_row_to_probabilities, avx512::pack_transposed};
  if (isa == Isa::kAvx2) return {avx2::score_row_to_probabilities, avx2::pack_transposed};
#endif
  (void)isa;
  return {portable::score_row_to_probabilities, portable::pack_transposed};
}

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

class AttentionF32 final : public BoundKernel {
 public:
  AttentionF32(AttentionParams params, const Problem& problem, Isa isa, int workers)
      : params_(params),
        q_(problem.inputs[0]),
        k_(problem.inputs[1]),
        v_(problem.inputs[2]),
        y_(problem.outputs[0]),
        mask_(mask_strides(problem)),
        tiles_(tile_kernels(isa)),
        rows_(row_functions(isa)),
        workers_(workers) {
    scores_panels_ = {params_.keys, params_.head_dim, tiles_.panel};
    value_panels_ = {params_.value_dim, params_.keys, tiles_.panel};
    // An odd number of cache lines a row: rows a power of two apart would share few L1 sets.
    score_stride_ = round_up(std::max<int64_t>(params_.keys, 1), 16);
    if (score_stride_ / 16 % 2 == 0) score_stride_ += 16;
    const int64_t fitting = std::max<int64_t>(1, kScoreBytes / 4 / score_stride_);
    const int64_t tile = tiles_.max_rows;
    block_ = std::min<int64_t>(kMaxBlock, fitting >= tile ? fitting / tile * tile : fitting);
    // Blocks of equal size, so that the last one is not a sliver.
    blocks_ = std::max<int64_t>(1, (params_.queries + block_ - 1) / block_);
    block_ = (params_.queries + blocks_ - 1) / blocks_;
    k_floats_ = round_up(scores_panels_.padded_columns() * params_.head_dim, 16);
    v_floats_ = round_up(value_panels_.padded_columns() * params_.keys, 16);
    worker_floats_ = k_floats_ + v_floats_ + block_ * score_stride_;
  }

  size_t workspace_bytes() const override {
    // The size of a block falls as keys grow, so the bound for the largest shape is taken: it grows with every dim.
    const int64_t scores =
        std::max(kScoreBytes / 4 + score_stride_, std::min(params_.queries, kMaxBlock) * score_stride_);
    return static_cast<size_t>((k_floats_ + v_floats_ + scores) * 4 * workers_);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    float* packed_k = reinterpret_cast<float*>(operands.workspace) + worker_floats_ * worker.rank();
    float* packed_v = packed_k + k_floats_;
    float* scores = packed_v + v_floats_;
    const Worker::Range items = worker.share(params_.batch * params_.heads * blocks_);
    int64_t packed_head = -1;
    for (int64_t item = items.begin; item < items.end; ++item) {
      const int64_t head = item / blocks_, b = head / params_.heads, h = head % params_.heads;
      if (head != packed_head) {
        pack(operands, b, h, packed_k, packed_v);
        packed_head = head;
      }
      const int64_t first = item % blocks_ * block_, rows = std::min(block_, params_.queries - first);
      if (rows <= 0) continue;
      const float* q = at(q_, operands.inputs[0], b, h) + first * q_.strides[2];
      multiply(q, q_.strides[2], rows, params_.head_dim, packed_k, scores_panels_, scores, score_stride_);
      for (int64_t r = 0; r < rows; ++r) to_probabilities(operands, b, h, first + r, scores + r * score_stride_);
      float* y = const_cast<float*>(at(y_, operands.outputs[0], b, h)) + first * y_.strides[2];
      multiply(scores, score_stride_, rows, params_.keys, packed_v, value_panels_, y, y_.strides[2]);
    }
  }

 private:
  static const float* at(const TensorDesc& desc, const void* data, int64_t b, int64_t h) {
    return static_cast<const float*>(data) + b * desc.strides[0] + h * desc.strides[1];
  }

  void pack(const Operands& operands, int64_t b, int64_t h, float* packed_k, float* packed_v) const noexcept {
    const float *k = at(k_, operands.inputs[1], b, h), *v = at(v_, operands.inputs[2], b, h);
    for (int64_t panel = 0; panel < scores_panels_.count(); ++panel) {
      const int64_t column = panel * scores_panels_.width;
      rows_.pack_transposed(k + column * k_.strides[2], k_.strides[2], scores_panels_.columns_of(panel),
                            params_.head_dim, scores_panels_.width_of(panel), packed_k + scores_panels_.offset(panel));
    }
    for (int64_t panel = 0; panel < value_panels_.count(); ++panel) {
      const int64_t width = value_panels_.width_of(panel), columns = value_panels_.columns_of(panel);
      float* out = packed_v + value_panels_.offset(panel);
      for (int64_t j = 0; j < params_.keys; ++j, out += width) {
        std::memcpy(out, v + j * v_.strides[2] + panel * value_panels_.width, static_cast<size_t>(columns) * 4);
        if (columns < width) std::memset(out + columns, 0, static_cast<size_t>(width - columns) * 4);
      }
    }
  }

  // out[r, n] = sum over k of a[r, k] * b[k, n], b in panels.
  void multiply(const float* a, int64_t a_step, int64_t rows, int64_t depth, const float* b, const Panels& panels,
                float* out, int64_t out_step) const noexcept {
    for (int64_t panel = 0; panel < panels.count(); ++panel) {
      const bool narrow = panels.width_of(panel) < panels.width;
      TileArgs args{};
      args.a_step = a_step;
      args.outer = args.middle = 1;
      args.run = depth;
      args.b = b + panels.offset(panel);
      args.out_step = out_step;
      args.columns = static_cast<int32_t>(panels.columns_of(panel));
      int64_t tiles_left = (rows + tiles_.max_rows - 1) / tiles_.max_rows;  // of nearly equal height: none is a sliver
      for (int64_t r = 0; r < rows; --tiles_left) {
        const int64_t count = (rows - r + tiles_left - 1) / tiles_left;
        args.a = a + r * a_step;
        args.out = out + r * out_step + panel * panels.width;
        (narrow ? tiles_.narrow : tiles_.full)[count](args);
        r += count;
      }
    }
  }

  void to_probabilities(const Operands& operands, int64_t b, int64_t h, int64_t i, float* scores) const noexcept {
    ScoreRow row{};
    row.scores = scores;
    row.keys = params_.keys;
    row.visible = params_.causal ? std::min(params_.keys, i + 1) : params_.keys;
    row.scale = params_.scale;
    row.masked_rows_to_zero = params_.masked_rows_to_zero;
    const int64_t offset = b * mask_.batch + h * mask_.head + i * mask_.query;
    if (params_.mask == MaskKind::kAdd) {
      row.add = static_cast<const float*>(operands.inputs[3]) + offset;
      row.add_stride = mask_.key;
    } else if (params_.mask == MaskKind::kKeep) {
      row.keep = static_cast<const uint8_t*>(operands.inputs[3]) + offset;
      row.keep_stride = mask_.key;
    }
    rows_.to_probabilities(row);
  }

  AttentionParams params_;
  TensorDesc q_, k_, v_, y_;
  MaskStrides mask_;
  const TileKernels& tiles_;
  RowFunctions rows_;
  int workers_;
  Panels scores_panels_, value_panels_;
  int64_t score_stride_ = 0, block_ = 0, blocks_ = 0, k_floats_ = 0, v_floats_ = 0, worker_floats_ = 0;
};

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(AttentionParams params, AttentionParams::from(problem));
  if (params.keys == 0 || params.head_dim == 0 || params.value_dim == 0)
    return unsupported("attention over nothing is left to the reference");
  const Panels keys{params.keys, params.head_dim, 64}, values{params.value_dim, params.keys, 64};
  if (!keys.size() || !values.size()) return unsupported("attention's keys or values are too large to pack");
  return Status::ok();
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts<kIsa>(problem, machine));
  FW_ASSIGN_OR_RETURN(AttentionParams params, AttentionParams::from(problem));
  return std::unique_ptr<BoundKernel>(std::make_unique<AttentionF32>(params, problem, kIsa, workers));
}

}  // namespace

#define FW_ATTENTION(isa, kIsa)               \
  extern const Tactic attention_f32_##isa;    \
  constinit const Tactic attention_f32_##isa{ \
      "attention_f32_" #isa, Family::kAttention, kIsa, accepts<kIsa>, nullptr, bind<kIsa>};
#if defined(__x86_64__)
FW_ATTENTION(avx512, Isa::kAvx512)
FW_ATTENTION(avx2, Isa::kAvx2)
#endif
FW_ATTENTION(portable, Isa::kPortable)
#undef FW_ATTENTION

}  // namespace flywheel::kernels
