// SPDX-License-Identifier: Apache-2.0
// The f32 tactics of pointwise: the loops around tile programs. The extents are merged and walked in the output's
// memory order; the innermost two make tiles. Operands that a tile program cannot read as they are (other types,
// strided columns, or short rows that would leave vectors half empty) are first gathered into f32 buffers that stay in
// L1.
#include "kernels/pointwise/pointwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/pointwise/tile_convert.h"
#include "kernels/strided.h"
#include "kernels/tactic.h"
#include "kernels/tile_program.h"

namespace flywheel::kernels {

Status check_pointwise(const Problem& problem) {
  FW_RETURN_IF_ERROR(check_operands(problem, Family::kPointwise, 1));
  if (problem.program.inputs != problem.inputs.size()) {
    return invalid_argument(fmt::format("pointwise has {} inputs, but its program takes {}", problem.inputs.size(),
                                        problem.program.inputs));
  }
  const TensorDesc& out = problem.outputs[0];
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (!broadcasts_to(problem.inputs[i].dims, out.dims)) {
      return invalid_argument(fmt::format("pointwise input {} of shape {} does not broadcast to the output's {}", i,
                                          dims_to_string(problem.inputs[i].dims), dims_to_string(out.dims)));
    }
  }
  for (int d = 0; d < out.rank(); ++d) {
    if (out.dims[d] > 1 && out.strides[d] == 0 && out.elements() > 0) {
      return invalid_argument(fmt::format("pointwise output {} writes one element several times", out.to_string()));
    }
  }
  if (!problem.ints.empty()) return invalid_argument("pointwise takes no ints");
  return Status::ok();
}

namespace {

constexpr int64_t kTileElements = 2048;  // 8 KB an operand
// Below this a row is too short for vectors, and rows are joined into stretches.
constexpr int64_t kShortRow = 48;

class PointwiseF32 final : public BoundKernel {
 public:
  PointwiseF32(const Problem& problem, Isa isa, int workers)
      : program_(problem.program), run_(tile_program(isa)), convert_(tile_convert(isa)), workers_(workers) {
    const TensorDesc& out = problem.outputs[0];
    std::vector<Dims> strides = {out.strides};
    for (const TensorDesc& in : problem.inputs) strides.push_back(broadcast_strides(in, out.dims));
    for (size_t i = 0; i < strides[0].size(); ++i) {
      if (out.dims[i] == 1) strides[0][i] = 0;
    }
    nest_ = LoopNest::make(out.dims, strides, LoopOrder::kByFirstOperand, 2);
    const int rank = nest_.rank();
    rows_ = nest_.extents[rank - 2];
    columns_ = nest_.extents[rank - 1];
    joined_ = columns_ < kShortRow && rows_ > 1;
    operands_.push_back(view(0, out.dtype));
    for (size_t i = 0; i < problem.inputs.size(); ++i) {
      operands_.push_back(view(static_cast<int>(i) + 1, problem.inputs[i].dtype));
    }
    choose_tiles();
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(workers_) * operands_.size() * kTileElements * sizeof(float);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    float* const buffers = reinterpret_cast<float*>(operands.workspace) +
                           static_cast<int64_t>(worker.rank()) * static_cast<int64_t>(operands_.size()) * kTileElements;
    const std::byte* held[kMaxRegisters + 1] = {};  // what each buffer was gathered from, to keep it while that stays
    int64_t held_rows = 0, held_columns = 0;
    const auto [begin, end] = worker.share(outer_ * row_tiles_ * column_tiles_);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile / column_tiles_ % row_tiles_ * tile_rows_, column = tile % column_tiles_ * tile_columns_;
      const int64_t outer = tile / column_tiles_ / row_tiles_;
      const int64_t rows = std::min(tile_rows_, rows_ - row), columns = std::min(tile_columns_, columns_ - column);
      if (rows != held_rows || columns != held_columns) std::fill(std::begin(held), std::end(held), nullptr);
      held_rows = rows;
      held_columns = columns;
      TileOperand inputs[kMaxRegisters];
      for (size_t i = 1; i < operands_.size(); ++i) {
        const View& view = operands_[i];
        const std::byte* data = static_cast<const std::byte*>(operands.inputs[i - 1]) + offset(i, outer, row, column);
        float* buffer = buffers + static_cast<int64_t>(i) * kTileElements;
        if (view.direct) {
          inputs[i - 1] = {reinterpret_cast<const float*>(data), joined_ ? 0 : view.row_stride, view.column_stride};
        } else {
          if (held[i] != data) gather(view, data, rows, columns, buffer);
          held[i] = data;
          inputs[i - 1] = {buffer, joined_ ? 0 : columns, 1};
        }
      }
      const View& out = operands_[0];
      std::byte* target = static_cast<std::byte*>(operands.outputs[0]) + offset(0, outer, row, column);
      float* result = out.direct ? reinterpret_cast<float*>(target) : buffers;
      if (joined_) {
        run_(program_, inputs, 1, rows * columns, result, 0);
      } else {
        run_(program_, inputs, rows, columns, result, out.direct ? out.row_stride : columns);
      }
      if (out.direct) continue;
      for (int64_t r = 0; r < rows; ++r) {
        convert_.store(out.dtype, buffers + r * columns, columns, target + r * out.row_stride * out.size,
                       out.column_stride);
      }
    }
  }

 private:
  struct View {
    DType dtype;
    int64_t size, row_stride, column_stride;
    bool direct;  // a tile program reads or writes it in place
  };

  View view(int operand, DType dtype) const {
    const auto& strides = nest_.strides[operand];
    View v{dtype, static_cast<int64_t>(dtype_size(dtype)), strides[strides.size() - 2], strides.back(), false};
    if (dtype != DType::kFloat32) return v;
    if (joined_) {
      v.direct = (v.column_stride == 1 && v.row_stride == columns_) ||
                 (operand > 0 && v.column_stride == 0 && v.row_stride == 0);
    } else {
      v.direct = v.column_stride == 1 || (operand > 0 && v.column_stride == 0);
      if (columns_ == 1) v.direct = true;
    }
    return v;
  }

  // Tiles of whole rows where rows are short; small enough that every member of the team gets several.
  void choose_tiles() {
    outer_ = nest_.points(0, nest_.rank() - 2);
    const int64_t total = outer_ * rows_ * columns_;
    const int64_t elements = std::clamp<int64_t>(total / (4 * workers_), 256, kTileElements);
    tile_columns_ = std::max<int64_t>(1, std::min(columns_, elements));
    tile_rows_ = std::max<int64_t>(1, std::min(rows_, elements / tile_columns_));
    row_tiles_ = (rows_ + tile_rows_ - 1) / tile_rows_;
    column_tiles_ = (columns_ + tile_columns_ - 1) / tile_columns_;
  }

  int64_t offset(size_t operand, int64_t outer, int64_t row, int64_t column) const {
    const View& view = operands_[operand];
    return (nest_.offset(static_cast<int>(operand), outer, nest_.rank() - 2) + row * view.row_stride +
            column * view.column_stride) *
           view.size;
  }

  void gather(const View& view, const std::byte* data, int64_t rows, int64_t columns, float* buffer) const {
    if (view.column_stride == 1 && view.row_stride == columns) {
      convert_.load(view.dtype, data, 1, rows * columns, buffer);
      return;
    }
    if (columns < rows) {  // down the columns: longer runs
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; r += 64) {
          float part[64];
          const int64_t n = std::min<int64_t>(64, rows - r);
          convert_.load(view.dtype, data + (r * view.row_stride + c * view.column_stride) * view.size, view.row_stride,
                        n, part);
          for (int64_t i = 0; i < n; ++i) buffer[(r + i) * columns + c] = part[i];
        }
      }
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      convert_.load(view.dtype, data + r * view.row_stride * view.size, view.column_stride, columns,
                    buffer + r * columns);
    }
  }

  Program program_;
  TileProgramFn run_;
  TileConvert convert_;
  int workers_;
  LoopNest nest_;               // operand 0 is the output
  std::vector<View> operands_;  // as in nest_
  int64_t outer_ = 1, rows_ = 1, columns_ = 1, tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
  bool joined_ = false;
};

Status accepts_f32(const Problem& problem, const Machine&) {
  FW_RETURN_IF_ERROR(check_pointwise(problem));
  if (problem.program.compute != DType::kFloat32) {
    return unsupported(fmt::format("computes in f32, not {}", dtype_name(problem.program.compute)));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind_f32(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts_f32(problem, machine));
  return std::unique_ptr<BoundKernel>(std::make_unique<PointwiseF32>(problem, kIsa, workers));
}

}  // namespace

TileConvert tile_convert(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return {avx512::load_as_floats, avx512::store_from_floats};
  if (isa == Isa::kAvx2) return {avx2::load_as_floats, avx2::store_from_floats};
#endif
  (void)isa;
  return {portable::load_as_floats, portable::store_from_floats};
}

#if defined(__x86_64__)
extern const Tactic pointwise_f32_avx512;
constinit const Tactic pointwise_f32_avx512{
    "pointwise_f32_avx512", Family::kPointwise, Isa::kAvx512, accepts_f32, nullptr, bind_f32<Isa::kAvx512>};
extern const Tactic pointwise_f32_avx2;
constinit const Tactic pointwise_f32_avx2{"pointwise_f32_avx2", Family::kPointwise, Isa::kAvx2, accepts_f32, nullptr,
                                          bind_f32<Isa::kAvx2>};
#endif
extern const Tactic pointwise_f32_portable;
constinit const Tactic pointwise_f32_portable{
    "pointwise_f32_portable", Family::kPointwise, Isa::kPortable, accepts_f32, nullptr, bind_f32<Isa::kPortable>};

}  // namespace flywheel::kernels
