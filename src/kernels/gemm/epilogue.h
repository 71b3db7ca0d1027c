// SPDX-License-Identifier: Apache-2.0
// How a contraction's program is carried out: inside the tile kernel where it is bias, residual and clamp, else as a
// tile program over the tile's accumulators. Built when a kernel is bound; immutable; any thread.
#pragma once

#include <vector>

#include "kernels/problem.h"
#include "kernels/tile_program.h"

namespace flywheel::kernels {

// An output-shaped operand seen from the contraction: element (image, row, column, channel) is at
// offset + image * image_stride + ...; strides in floats, 0 where it broadcasts.
struct View {
  int64_t offset = 0, image = 0, row = 0, column = 0, channel = 0;
  int64_t at(int64_t i, int64_t y, int64_t x, int64_t k) const {
    return offset + i * image + y * row + x * column + k * channel;
  }
};

struct Epilogue {
  bool fused = true;  // bias, residual and clamp say it all; else run `program`
  int bias = -1;      // index in `operands`, or -1
  int residual = -1;
  bool clamp = false;
  float low = 0, high = 0;
  Program program;
  TileProgramFn run = nullptr;
  std::vector<View> operands;  // inputs[main_operands ..] of the problem

  // Views have the output's last four dims (fewer where its rank is lower). kUnsupported unless everything is f32.
  static Result<Epilogue> from(const Problem& problem, size_t main_operands, Isa isa);
};

// The view of an operand broadcasting to an output of rank `rank` <= 4.
View view_of(const TensorDesc& desc, int rank);

}  // namespace flywheel::kernels
