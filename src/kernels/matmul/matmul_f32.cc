// SPDX-License-Identifier: Apache-2.0
// matmul in f32 on every ISA. Each worker takes its part of the batch, of B's columns and of A's rows; it packs one
// panel of B at a time into its own scratch and multiplies its rows with it, so that workers never wait for each other.
// A is read in place when its rows are contiguous, else from a transposed copy.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/panels.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/gemm/tile_kernel.h"
#include "kernels/gemm/transpose.h"
#include "kernels/matmul/matmul.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An operand: strides of its matrix and of the batch dims that are left.
struct Matrix {
  std::array<int64_t, kMaxRank> batch{};
  int64_t row = 0, column = 0;
};

struct Share {
  int64_t begin, end;
};
Share share(int64_t count, int64_t grain, int part, int parts) {
  const int64_t grains = ceil_div(count, grain);
  return {std::min(count, grains * part / parts * grain), std::min(count, grains * (part + 1) / parts * grain)};
}

class MatMulF32 final : public BoundKernel {
 public:
  MatMulF32(const Problem& problem, const MatMulParams& params, Epilogue epilogue, Isa isa, int workers)
      : m_(params.m),
        batch_(params.batch),
        epilogue_(std::move(epilogue)),
        kernels_(tile_kernels(isa)),
        transpose_(transpose_kernel(isa)),
        panels_{params.n, params.k, kernels_.panel},
        workers_(workers) {
    const int rank = problem.outputs[0].rank();
    auto matrix = [&](const TensorDesc& desc) {
      const auto strides = broadcast_strides(desc, rank);
      Matrix out;
      std::copy_n(strides.begin(), rank - 2, out.batch.begin());
      out.row = strides[rank - 2];
      out.column = strides[rank - 1];
      return out;
    };
    a_ = matrix(problem.inputs[0]);
    b_ = matrix(problem.inputs[1]);
    y_ = matrix(problem.outputs[0]);
    for (size_t i = 2; i < problem.inputs.size(); ++i) operands_.push_back(matrix(problem.inputs[i]));
    copy_a_ = a_.column != 1 && params.k > 1;
    if (!copy_a_) merge_batch();
    batches_ = element_count(batch_);
    wide_ = m_ <= kernels_.wide_rows && panels_.count() > 1;
    choose_split();
  }

  // For every worker a pair of panels and, where A is copied, all of its rows: what a worker's share needs depends on
  // the split, which may change as dims grow, and the workspace must not shrink then.
  size_t workspace_bytes() const override { return static_cast<size_t>(workers_ * floats_a_worker()) * sizeof(float); }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    int part = worker.rank();
    const int batch_part = part % split_batch_;
    part /= split_batch_;
    const int panel_part = part % split_panels_, row_part = part / split_panels_;
    const Share batches = share(batches_, 1, batch_part, split_batch_);
    const Share panels = share(panels_.count(), wide_ ? 2 : 1, panel_part, split_panels_);
    const Share rows = share(m_, kernels_.max_rows, row_part, split_rows_);
    if (panels.begin == panels.end || rows.begin == rows.end) return;
    float* packed = reinterpret_cast<float*>(operands.workspace) + worker.rank() * floats_a_worker();
    float* copy = packed + 2 * panels_.steps * panels_.width;
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      const float* a = static_cast<const float*>(operands.inputs[0]) + offset(a_, batch) + rows.begin * a_.row;
      const float* b = static_cast<const float*>(operands.inputs[1]) + offset(b_, batch);
      int64_t a_step = a_.row;
      if (copy_a_) {
        copy_rows(a, rows.end - rows.begin, copy);
        a = copy;
        a_step = panels_.steps;
      }
      for (int64_t p = panels.begin; p < panels.end;) {
        const bool pair = wide_ && p + 1 < panels.end && panels_.width_of(p + 1) == panels_.width;
        pack(b, p, packed);
        if (pair) pack(b, p + 1, packed + panels_.steps * panels_.width);
        multiply(operands, batch, p, pair, a, a_step, packed, rows);
        p += pair ? 2 : 1;
      }
    }
  }

 private:
  int64_t floats_a_worker() const {
    const int64_t floats = 2 * panels_.steps * panels_.width + (copy_a_ ? m_ * panels_.steps : 0);
    return ceil_div(floats, 16) * 16;
  }

  int64_t offset(const Matrix& matrix, int64_t batch) const noexcept {
    int64_t sum = 0;
    for (size_t d = batch_.size(); d-- > 0; batch /= batch_[d]) sum += batch % batch_[d] * matrix.batch[d];
    return sum;
  }

  // Matrices of A that follow each other without a gap and meet the same B are one taller matrix.
  void merge_batch() {
    while (!batch_.empty()) {
      const size_t d = batch_.size() - 1;
      const auto follows = [&](const Matrix& x) { return x.batch[d] == m_ * x.row; };
      const bool one = batch_[d] == 1;
      if (!one && (b_.batch[d] != 0 || !follows(a_) || !follows(y_) ||
                   !std::all_of(operands_.begin(), operands_.end(), follows))) {
        return;
      }
      m_ *= batch_[d];
      batch_.pop_back();
    }
  }

  // The split in which the slowest worker has the least to do: multiplications, and packing of what it multiplies with.
  void choose_split() {
    double best = std::numeric_limits<double>::infinity();
    for (int rows = 1; rows <= workers_; ++rows) {
      for (int panels = 1; rows * panels <= workers_; ++panels) {
        if (workers_ % (rows * panels) != 0) continue;
        const int batch = workers_ / (rows * panels);
        const double tiles = static_cast<double>(ceil_div(ceil_div(m_, kernels_.max_rows), rows));
        const double cost = static_cast<double>(ceil_div(batches_, batch)) *
                            static_cast<double>(ceil_div(panels_.count(), panels)) * (tiles * kernels_.max_rows + 6);
        if (cost < best) {
          best = cost;
          split_batch_ = batch;
          split_panels_ = panels;
          split_rows_ = rows;
        }
      }
    }
  }

  void copy_rows(const float* a, int64_t rows, float* copy) const noexcept {
    const int64_t k = panels_.steps;
    if (a_.row == 1 || rows == 1) return transpose_(a, a_.column, k, rows, copy, k);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < k; ++i) copy[r * k + i] = a[r * a_.row + i * a_.column];
    }
  }

  void pack(const float* b, int64_t panel, float* packed) const noexcept {
    const int64_t width = panels_.width_of(panel), columns = panels_.columns_of(panel), k = panels_.steps;
    const float* in = b + panel * panels_.width * b_.column;
    if (b_.column == 1) {
      for (int64_t i = 0; i < k; ++i, in += b_.row, packed += width) {
        std::memcpy(packed, in, static_cast<size_t>(columns) * sizeof(float));
        for (int64_t c = columns; c < width; ++c) packed[c] = 0;
      }
      return;
    }
    if (b_.row == 1 || k == 1) {
      transpose_(in, b_.column, columns, k, packed, width);
    } else {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t c = 0; c < columns; ++c) packed[i * width + c] = in[i * b_.row + c * b_.column];
      }
    }
    for (int64_t i = 0; columns < width && i < k; ++i) {
      for (int64_t c = columns; c < width; ++c) packed[i * width + c] = 0;
    }
  }

  void multiply(const Operands& operands, int64_t batch, int64_t panel, bool pair, const float* a, int64_t a_step,
                const float* packed, const Share& rows) const noexcept {
    const int64_t first = panel * panels_.width, width = panels_.width_of(panel);
    const bool narrow = width < panels_.width;
    const TileFn* kernels = pair ? kernels_.wide : narrow ? kernels_.narrow : kernels_.full;
    const int64_t columns = panels_.columns_of(panel) + (pair ? panels_.columns_of(panel + 1) : 0);
    const int64_t scratch_width = pair ? 2 * width : width;
    alignas(64) float scratch[2 * kMaxTileRows * 32];
    TileArgs args{};
    args.a_step = a_step;
    args.outer = args.middle = 1;
    args.run = panels_.steps;
    args.b = packed;
    args.panel_stride = panels_.steps * panels_.width;
    args.clamp = epilogue_.fused && epilogue_.clamp;
    args.low = epilogue_.low;
    args.high = epilogue_.high;
    const int64_t total = rows.end - rows.begin, tiles = ceil_div(total, kernels_.max_rows);
    float* const y = static_cast<float*>(operands.outputs[0]) + offset(y_, batch) + first;
    TileOperand tile[kMaxRegisters];
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = t * total / tiles, count = (t + 1) * total / tiles - begin, m = rows.begin + begin;
      const auto operand = [&](int index) {
        const Matrix& x = operands_[index];
        return static_cast<const float*>(operands.inputs[2 + index]) + offset(x, batch) + m * x.row + first * x.column;
      };
      args.a = a + begin * a_step;
      float* out = y + m * y_.row;
      if (epilogue_.fused) {
        args.out = out;
        args.out_step = y_.row;
        args.columns = static_cast<int32_t>(columns);
        if (epilogue_.bias >= 0) args.bias = operand(epilogue_.bias);
        if (epilogue_.residual >= 0) {
          args.residual = operand(epilogue_.residual);
          args.residual_step = operands_[epilogue_.residual].row;
        }
        kernels[count](args);
        continue;
      }
      args.out = scratch;
      args.out_step = scratch_width;
      args.columns = static_cast<int32_t>(scratch_width);
      kernels[count](args);
      tile[0] = {scratch, scratch_width, 1};
      for (size_t i = 0; i < operands_.size(); ++i) {
        tile[i + 1] = {operand(static_cast<int>(i)), operands_[i].row, operands_[i].column};
      }
      epilogue_.run(epilogue_.program, tile, count, columns, out, y_.row);
    }
  }

  int64_t m_;
  Dims batch_;
  Epilogue epilogue_;
  const TileKernels& kernels_;
  TransposeFn transpose_;
  Panels panels_;
  int workers_;
  Matrix a_, b_, y_;
  std::vector<Matrix> operands_;
  bool copy_a_ = false, wide_ = false;
  int64_t batches_ = 1;
  int split_batch_ = 1, split_panels_ = 1, split_rows_ = 1;
};

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(MatMulParams params, MatMulParams::from(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  // The scratch of up to 1024 workers must be countable; operands with strides of 0 may be larger than any memory.
  int64_t floats = 0;
  if (params.k > (int64_t{1} << 40) || __builtin_mul_overflow(params.m, params.k, &floats) ||
      floats > (int64_t{1} << 48)) {
    return unsupported(fmt::format("a matrix of {} rows and {} columns is too large", params.m, params.k));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts<kIsa>(problem, machine));
  FW_ASSIGN_OR_RETURN(MatMulParams params, MatMulParams::from(problem));
  FW_ASSIGN_OR_RETURN(Epilogue epilogue, Epilogue::from(problem, 2, kIsa));
  return std::unique_ptr<BoundKernel>(std::make_unique<MatMulF32>(problem, params, std::move(epilogue), kIsa, workers));
}

template <Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kMatMul, kIsa, accepts<kIsa>, nullptr, bind<kIsa>};
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic matmul_f32_avx512 = tactic<Isa::kAvx512>("matmul_f32_14x32_avx512");
extern constinit const Tactic matmul_f32_avx2 = tactic<Isa::kAvx2>("matmul_f32_6x16_avx2");
#endif
extern constinit const Tactic matmul_f32_portable = tactic<Isa::kPortable>("matmul_f32_6x8_portable");

}  // namespace flywheel::kernels
