// SPDX-License-Identifier: Apache-2.0
// Winograd convolution F(4x4, 3x3) and F(2x2, 3x3) in f32 on every ISA, for 3x3 kernels of stride 1: 4 and 2.25 times
// fewer products than the direct form, for 4 and 1.8 times larger weights.
//
// The output is cut into tiles of m x m. A chunk of tiles is transformed into (m+2)^2 matrices of tiles x channels,
// each is multiplied with its matrix of weights, and the products are transformed back. Workers either take their own
// tiles, or (where weights are large and tiles few) transform a chunk together and then take their own output channels,
// so that each streams only its part of the weights.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/winograd_kernel.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/panels.h"
#include "kernels/gemm/tile_kernel.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kProgramFloats = 4096;

constexpr double kWeights2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
constexpr double kWeights4[6][3] = {{1.0 / 4, 0, 0},
                                    {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                    {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                    {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                    {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                    {0, 0, 1}};

// The weights of one position of the transformed tile, as panels over output channels.
Panels panels_of(const Problem& problem, Isa isa) {
  const Dims& w = problem.inputs[1].dims;
  return {w[0], w[1], tile_kernels(isa).panel};
}

template <int M>
class Winograd final : public BoundKernel {
 public:
  static constexpr int kTile = M + 2, kPositions = kTile * kTile;

  Winograd(const Problem& problem, const ConvParams& params, Epilogue epilogue, const Machine& machine, Isa isa,
           int workers)
      : p_(params),
        epilogue_(std::move(epilogue)),
        kernels_(tile_kernels(isa)),
        transforms_(winograd_kernels(isa)),
        panels_(panels_of(problem, isa)),
        workers_(workers) {
    const TensorDesc &x = problem.inputs[0], &y = problem.outputs[0];
    x_ = view_of(x, 4);
    y_ = view_of(y, 4);
    in_rows_ = x.dims[1];
    in_columns_ = x.dims[2];
    rows_ = y.dims[1];
    columns_ = y.dims[2];
    channels_ = x.dims[3];
    tiles_down_ = ceil_div(rows_, M);
    tiles_across_ = ceil_div(columns_, M);
    tiles_ = y.dims[0] * tiles_down_ * tiles_across_;
    v_step_ = ceil_div(channels_, transforms_.lanes) * transforms_.lanes;
    m_step_ = panels_.padded_columns();
    const int64_t weight_bytes = kPositions * panels_.padded_columns() * panels_.steps * 4;
    const int64_t tile_bytes = kPositions * (v_step_ + m_step_) * 4;
    // Few enough tiles that their matrices stay in L2 where the weights do too; where the weights come from farther
    // away, as many as it takes to use a panel often enough.
    const int64_t fitting = std::max<int64_t>(1, machine.l2_bytes / 2 / tile_bytes);
    const int64_t least = weight_bytes <= machine.l2_bytes ? 14 : weight_bytes <= 3 * machine.l2_bytes ? 28 : 70;
    chunk_ = std::clamp<int64_t>(fitting / 14 * 14, least, std::max<int64_t>(least, 112));
    by_channels_ =
        workers > 1 && panels_.count() >= workers && (weight_bytes > 3 * machine.l2_bytes || tiles_ < 14 * workers);
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(workers_) *
           static_cast<size_t>(kPositions * std::min(chunk_, tiles_) * (2 * v_step_ + m_step_)) * sizeof(float);
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const int64_t capacity = std::min(chunk_, tiles_);
    const int64_t v_floats = kPositions * capacity * v_step_, m_floats = kPositions * capacity * m_step_;
    float* const workspace = reinterpret_cast<float*>(operands.workspace);
    // Shared matrices alternate between two places: while some still read one chunk's, others write the next one's.
    float* const shared[2] = {workspace, workspace + v_floats};
    float* const own = workspace + 2 * workers_ * v_floats + worker.rank() * m_floats;
    if (by_channels_) {
      const Worker::Range panels = worker.share(panels_.count());
      const int64_t passes = ceil_div(tiles_, chunk_);
      for (int64_t pass = 0; pass < passes; ++pass) {
        const int64_t first = tiles_ * pass / passes, count = tiles_ * (pass + 1) / passes - first;
        const Worker::Range mine = worker.share(count);
        transform_input(operands, first, count, mine.begin, mine.end, shared[pass % 2]);
        worker.barrier();
        multiply(operands, shared[pass % 2], count, panels.begin, panels.end, own);
        transform_output(operands, first, count, panels.begin, panels.end, own);
      }
      return;
    }
    float* const v = workspace + worker.rank() * v_floats;
    const Worker::Range tiles = worker.share(tiles_);
    const int64_t total = tiles.end - tiles.begin, passes = ceil_div(total, chunk_);
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = tiles.begin + total * pass / passes;
      const int64_t count = tiles.begin + total * (pass + 1) / passes - first;
      transform_input(operands, first, count, 0, count, v);
      multiply(operands, v, count, 0, panels_.count(), own);
      transform_output(operands, first, count, 0, panels_.count(), own);
    }
  }

 private:
  struct Place {
    int64_t image, y, x;  // of the tile's first output
  };
  Place place_of(int64_t tile) const noexcept {
    const int64_t an_image = tiles_down_ * tiles_across_;
    return {tile / an_image, tile % an_image / tiles_across_ * M, tile % tiles_across_ * M};
  }

  // Tiles [begin, end) of the chunk of `count` tiles that starts at `first`.
  void transform_input(const Operands& operands, int64_t first, int64_t count, int64_t begin, int64_t end,
                       float* v) const noexcept {
    WinogradInput args{};
    args.row = x_.row;
    args.column = x_.column;
    args.channels = channels_;
    args.position = count * v_step_;
    for (int64_t i = begin; i < end; ++i) {
      const Place place = place_of(first + i);
      const int64_t y = place.y - p_.pad_top, x = place.x - p_.pad_left;
      const auto bound = [](int64_t value) { return static_cast<int32_t>(std::clamp<int64_t>(value, 0, kTile)); };
      args.y0 = bound(-y);
      args.y1 = bound(in_rows_ - y);
      args.x0 = bound(-x);
      args.x1 = bound(in_columns_ - x);
      args.x = static_cast<const float*>(operands.inputs[0]) + place.image * x_.image + y * x_.row + x * x_.column;
      args.v = v + i * v_step_;
      M == 2 ? transforms_.input2(args) : transforms_.input4(args);
    }
  }

  void multiply(const Operands& operands, const float* v, int64_t count, int64_t panel_begin, int64_t panel_end,
                float* m) const noexcept {
    const float* weights = reinterpret_cast<const float*>(operands.packed);
    const int64_t position_floats = panels_.padded_columns() * panels_.steps;
    const bool wide = count <= kernels_.wide_rows;
    const int64_t pieces = ceil_div(count, kernels_.max_rows);
    TileArgs args{};
    args.a_step = v_step_;
    args.outer = args.middle = 1;
    args.run = panels_.steps;
    args.out_step = m_step_;
    args.prefetch_lines = pieces == 1 ? 8 : ceil_div(8, pieces);
    for (int64_t position = 0; position < kPositions; ++position) {
      for (int64_t p = panel_begin; p < panel_end;) {
        const bool pair = wide && p + 1 < panel_end && panels_.width_of(p + 1) == panels_.width;
        const int64_t width = panels_.width_of(p);
        const TileFn* kernels = pair ? kernels_.wide : width < panels_.width ? kernels_.narrow : kernels_.full;
        args.b = weights + position * position_floats + panels_.offset(p);
        args.panel_stride = panels_.steps * panels_.width;
        args.columns = static_cast<int32_t>(pair ? 2 * width : width);
        // With one piece the panel streams through: look ahead in it. Else fetch the next panel, a part with each
        // piece.
        const bool last = p + (pair ? 2 : 1) >= panel_end;
        const float* next = last ? weights + std::min<int64_t>(position + 1, kPositions - 1) * position_floats +
                                       panels_.offset(panel_begin)
                                 : args.b + (pair ? 2 : 1) * args.panel_stride;
        args.prefetch =
            pieces == 1 ? reinterpret_cast<const char*>(args.b) + 8192 : reinterpret_cast<const char*>(next);
        for (int64_t i = 0; i < pieces; ++i) {
          const int64_t begin = i * count / pieces, rows = (i + 1) * count / pieces - begin;
          args.a = v + position * count * v_step_ + begin * v_step_;
          args.out = m + (position * count + begin) * m_step_ + p * panels_.width;
          kernels[rows](args);
          args.prefetch += panels_.steps / 4 * args.prefetch_lines * 64;
        }
        p += pair ? 2 : 1;
      }
    }
  }

  void transform_output(const Operands& operands, int64_t first, int64_t count, int64_t panel_begin, int64_t panel_end,
                        const float* m) const noexcept {
    const int64_t k = panel_begin * panels_.width, k_end = std::min(panels_.columns, panel_end * panels_.width);
    if (k >= k_end) return;
    WinogradOutput args{};
    args.position = count * m_step_;
    args.channels = k_end - k;
    args.row = y_.row;
    args.column = y_.column;
    args.clamp = epilogue_.fused && epilogue_.clamp;
    args.low = epilogue_.low;
    args.high = epilogue_.high;
    int64_t run_x = place_of(first).x;  // where outputs begin that the program has not seen
    for (int64_t i = 0; i < count; ++i) {
      const Place place = place_of(first + i);
      const auto operand = [&](int index, int64_t y) {
        return static_cast<const float*>(operands.inputs[2 + index]) +
               epilogue_.operands[index].at(place.image, y, place.x, k);
      };
      args.m = m + i * m_step_ + k;
      args.out = static_cast<float*>(operands.outputs[0]) + y_.at(place.image, place.y, place.x, k);
      args.rows = static_cast<int32_t>(std::min<int64_t>(M, rows_ - place.y));
      args.columns = static_cast<int32_t>(std::min<int64_t>(M, columns_ - place.x));
      if (epilogue_.fused && epilogue_.bias >= 0) args.bias = operand(epilogue_.bias, place.y);
      if (epilogue_.fused && epilogue_.residual >= 0) {
        args.residual = operand(epilogue_.residual, place.y);
        args.residual_row = epilogue_.operands[epilogue_.residual].row;
        args.residual_column = epilogue_.operands[epilogue_.residual].column;
      }
      M == 2 ? transforms_.output2(args) : transforms_.output4(args);
      if (epilogue_.fused) continue;
      // Any other program runs over a stretch of tiles' outputs where they are, while they are in L1.
      const bool ends_row = place.x + M >= columns_;
      const int64_t run = place.x + args.columns - run_x;
      if (!ends_row && i + 1 < count && (run + M) * M * args.channels <= kProgramFloats) continue;
      run_program(operands, {place.image, place.y, run_x}, args.rows, run, k, args.channels);
      run_x = ends_row ? 0 : place.x + M;
    }
  }

  void run_program(const Operands& operands, const Place& place, int64_t rows, int64_t columns, int64_t k,
                   int64_t channels) const noexcept {
    TileOperand tile[kMaxRegisters];
    for (int64_t r = 0; r < rows; ++r) {
      float* out = static_cast<float*>(operands.outputs[0]) + y_.at(place.image, place.y + r, place.x, k);
      tile[0] = {out, y_.column, 1};
      for (size_t i = 0; i < epilogue_.operands.size(); ++i) {
        const View& view = epilogue_.operands[i];
        tile[i + 1] = {
            static_cast<const float*>(operands.inputs[2 + i]) + view.at(place.image, place.y + r, place.x, k),
            view.column, view.channel};
      }
      epilogue_.run(epilogue_.program, tile, columns, channels, out, y_.column);
    }
  }

  ConvParams p_;
  Epilogue epilogue_;
  const TileKernels& kernels_;
  const WinogradKernels& transforms_;
  Panels panels_;
  int workers_;
  View x_, y_;
  int64_t in_rows_, in_columns_, rows_, columns_, channels_;
  int64_t tiles_down_, tiles_across_, tiles_;
  int64_t v_step_, m_step_;  // floats of one tile in a position's matrix
  int64_t chunk_;
  bool by_channels_;
};

template <int M>
std::optional<int64_t> packed_floats(const Problem& problem, Isa isa) {
  const std::optional<int64_t> position = panels_of(problem, isa).size();
  int64_t floats = 0, bytes = 0;
  if (!position || __builtin_mul_overflow(*position, int64_t{(M + 2) * (M + 2)}, &floats) ||
      __builtin_mul_overflow(floats, 8, &bytes)) {
    return {};
  }
  return floats;
}

template <int M, Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(ConvParams p, ConvParams::from(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  if (p.kernel_h != 3 || p.kernel_w != 3 || p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 ||
      p.dilation_w != 1 || p.groups != 1) {
    return unsupported(
        fmt::format("Winograd is for 3x3 kernels of stride, dilation and groups 1; found {}x{}, {}x{}, {}x{}, {}",
                    p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups));
  }
  const Dims& w = problem.inputs[1].dims;
  if (w[0] < 16 || w[1] < 16) {
    return unsupported(fmt::format(
        "{} input and {} output channels are too few to pay for the transforms; 16 may be enough", w[1], w[0]));
  }
  if (problem.constant.size() < 2 || !problem.constant[1]) {
    return unsupported("conv packs W at build time, so W must be constant");
  }
  if (!packed_floats<M>(problem, kIsa)) {
    return unsupported(fmt::format("conv's weights {} are too large to transform", dims_to_string(w)));
  }
  return Status::ok();
}

// U = G g G^T for every pair of channels, in double precision; position by position, each in panels.
template <int M, Isa kIsa>
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  constexpr int kTile = M + 2;
  const std::optional<int64_t> floats = packed_floats<M>(problem, kIsa);
  if (!floats) return out_of_memory("conv's transformed weights exceed 2^63 bytes");
  const Panels panels = panels_of(problem, kIsa);
  const int64_t outputs = panels.columns, inputs = panels.steps;
  FW_ASSIGN_OR_RETURN(AlignedBuffer packed, AlignedBuffer::allocate(static_cast<size_t>(*floats) * sizeof(float),
                                                                    "transformed conv weights"));
  FW_ASSIGN_OR_RETURN(
      AlignedBuffer position,
      AlignedBuffer::allocate(static_cast<size_t>(outputs * inputs) * sizeof(float), "transform of conv weights"));
  const auto& g = []() -> const double(&)[kTile][3] {
    if constexpr (M == 2) {
      return kWeights2;
    } else {
      return kWeights4;
    }
  }();
  const float* w = static_cast<const float*>(constants[1]);
  float* u = reinterpret_cast<float*>(position.data());
  PanelSource source;
  source.data = u;
  source.column_stride = inputs;
  source.depth = inputs;
  source.depth_stride = 1;
  for (int y = 0; y < kTile; ++y) {
    for (int x = 0; x < kTile; ++x) {
      double factor[9];
      for (int t = 0; t < 9; ++t) factor[t] = g[y][t / 3] * g[x][t % 3];
      for (int64_t i = 0; i < outputs * inputs; ++i) {
        double sum = 0;
        for (int t = 0; t < 9; ++t) sum += factor[t] * static_cast<double>(w[i * 9 + t]);
        u[i] = static_cast<float>(sum);
      }
      pack_panels(panels, source, 0, panels.count(),
                  reinterpret_cast<float*>(packed.data()) + (y * kTile + x) * panels.padded_columns() * panels.steps);
    }
  }
  consumed.assign(problem.inputs.size(), false);
  consumed[1] = true;
  return packed;
}

template <int M, Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR((accepts<M, kIsa>(problem, machine)));
  FW_ASSIGN_OR_RETURN(ConvParams params, ConvParams::from(problem));
  FW_ASSIGN_OR_RETURN(Epilogue epilogue, Epilogue::from(problem, 2, kIsa));
  return std::unique_ptr<BoundKernel>(
      std::make_unique<Winograd<M>>(problem, params, std::move(epilogue), machine, kIsa, workers));
}

template <int M, Isa kIsa>
uint64_t packed_bytes(const Problem& problem) {
  return static_cast<uint64_t>(packed_floats<M>(problem, kIsa).value_or(0)) * sizeof(float);
}

template <int M, Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kConv, kIsa, accepts<M, kIsa>, pack<M, kIsa>, bind<M, kIsa>, packed_bytes<M, kIsa>};
}

}  // namespace

namespace avx512 {
extern const WinogradKernels kWinogradKernels;
}
namespace avx2 {
extern const WinogradKernels kWinogradKernels;
}
namespace portable {
extern const WinogradKernels kWinogradKernels;
}

const WinogradKernels& winograd_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::kWinogradKernels;
  if (isa == Isa::kAvx2) return avx2::kWinogradKernels;
#endif
  (void)isa;
  return portable::kWinogradKernels;
}

#if defined(__x86_64__)
extern constinit const Tactic conv_winograd4_avx512 = tactic<4, Isa::kAvx512>("conv_f32_winograd4_avx512");
extern constinit const Tactic conv_winograd2_avx512 = tactic<2, Isa::kAvx512>("conv_f32_winograd2_avx512");
extern constinit const Tactic conv_winograd4_avx2 = tactic<4, Isa::kAvx2>("conv_f32_winograd4_avx2");
extern constinit const Tactic conv_winograd2_avx2 = tactic<2, Isa::kAvx2>("conv_f32_winograd2_avx2");
#endif
extern constinit const Tactic conv_winograd4_portable = tactic<4, Isa::kPortable>("conv_f32_winograd4_portable");
extern constinit const Tactic conv_winograd2_portable = tactic<2, Isa::kPortable>("conv_f32_winograd2_portable");

}  // namespace flywheel::kernels
