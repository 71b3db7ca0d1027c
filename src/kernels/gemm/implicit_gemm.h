// SPDX-License-Identifier: Apache-2.0
// The one driver of f32 contractions with a packed B: a convolution read straight from NHWC, of which a matrix product
// is the case of one image row. gemm, conv and conv_transpose describe themselves to it.
//
// The output is cut into rectangles in which the same kernel taps lie inside the input, so that borders need neither
// padding nor masks: a rectangle is a convolution with fewer taps. Its lines (rows, or columns where the rectangle is
// narrow) are cut into segments of at most a tile's rows.
// Immutable after create(); run() is called by every member of a team of the size given to create().
#pragma once

#include <vector>

#include "base/thread_team.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/panels.h"
#include "kernels/gemm/tap_ranges.h"
#include "kernels/gemm/tile_kernel.h"

namespace flywheel::kernels {

struct ContractionShape {
  int64_t images = 1, rows = 1, columns = 1;  // of the output
  int64_t channels = 0;                       // of the output, in one group
  int64_t groups = 1;
  int64_t depth = 0;  // input channels of one group
  int64_t in_rows = 1, in_columns = 1;
  View input;   // channel stride 1
  View output;  // channel stride 1
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  int64_t dilation_h = 1, dilation_w = 1;

  int64_t steps() const { return kernel_h * kernel_w * depth; }
};

class ImplicitGemm {
 public:
  // `epilogue.operands` are views of the same output.
  static ImplicitGemm create(const ContractionShape& shape, Epilogue epilogue, const Machine& machine, Isa isa,
                             int workers);

  // B as it must be packed: groups one after the other, each `panels().size()` floats.
  static Panels panels(const ContractionShape& shape, Isa isa);

  size_t workspace_bytes() const { return staging_floats_ * sizeof(float) * workers_; }
  void run(const float* input, const float* packed, float* output, const void* const* operands, std::byte* workspace,
           const Worker& worker) const noexcept;

 private:
  // A part of the output whose pixels all use the kernel taps of one range.
  struct Rectangle {
    View input, output;  // `row`: from line to line; `column`: along a line
    std::vector<View> operands;
    int64_t lines, length, segments;  // segments a line
    int64_t outer, middle, run, a_outer, a_middle;
    int64_t first_step, outer_skip;  // in steps of B
    double unit_cost;
  };
  struct Cursor {
    int64_t image = 0, line = 0, segment = 0;
    size_t rectangle = 0;
  };
  struct Panel {
    int64_t b, a, channel;  // offsets in packed floats, input channels, output channels
    int32_t columns, width;
  };
  struct Job;

  void merge_lines();
  void cut_rectangles();
  void add_rectangle(const TapRange& y, const TapRange& x);
  void list_panels();
  void choose_split(const Machine& machine);
  void choose_chunk(const Machine& machine);
  int64_t unit_at(double share_of_cost) const;
  Cursor seek(int64_t unit) const;
  void advance(Cursor& cursor) const;
  void run_tile(const Job& job, const Cursor& cursor, size_t panel, TileArgs& args) const noexcept;
  void stage(const Job& job, Cursor cursor, int64_t units) const noexcept;

  ContractionShape shape_;
  Epilogue epilogue_;
  const TileKernels* kernels_ = nullptr;
  Panels panels_;
  std::vector<Rectangle> rectangles_;
  std::vector<Panel> panel_list_;
  int64_t units_an_image_ = 0;
  double cost_an_image_ = 0;
  bool wide_ = false;  // two panels at once
  int workers_ = 1, split_units_ = 1, split_panels_ = 1;
  int64_t chunk_ = 1;  // units that a pass over the panels takes
  bool prefetch_panels_ = false;
  int64_t staging_step_ = 0;    // row step of the staged copy of A, 0 when A is read in place
  int64_t staging_floats_ = 0;  // a worker
};

}  // namespace flywheel::kernels
