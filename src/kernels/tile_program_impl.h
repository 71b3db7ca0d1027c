// SPDX-License-Identifier: Apache-2.0
// The interpreter of tile programs, the same text for every ISA: included by tile_program_<isa>.cc alone.
// Chains go the short way (tile_chain_impl.h); any other program runs instruction by instruction over registers of
// kChunk floats, which stay in L1.
#pragma once

#include "kernels/tile_chain_impl.h"

namespace flywheel::kernels::FW_ISA {

inline constexpr int64_t kChunk = 512;

// Registers of the general interpreter. Those of unused registers are never touched, so they cost address space only.
struct alignas(64) Registers {
  float values[kMaxRegisters][kChunk];
};

// Input (row .. row + rows, column .. column + columns) as one stretch of rows * columns floats: in place when it lies
// so, else gathered into `scratch`.
static inline Source stretch_of(const TileOperand& operand, int64_t row, int64_t column, int64_t rows, int64_t columns,
                                float* scratch) {
  const float* data = operand.data + row * operand.row_stride + column * operand.col_stride;
  const bool one_row = rows == 1;
  if (operand.col_stride == 1 && (one_row || operand.row_stride == columns)) return {data, kLanes};
  if (operand.col_stride == 0 && (one_row || operand.row_stride == 0)) {
    store(scratch, splat(*data));
    return {scratch, 0};
  }
  if (operand.col_stride <= 1 && operand.col_stride >= 0) {
    run_light_tile({data, operand.row_stride, operand.col_stride}, nullptr, 0, rows, columns, scratch, columns);
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        scratch[r * columns + c] = data[r * operand.row_stride + c * operand.col_stride];
    }
  }
  return {scratch, kLanes};
}

// A part of at most kChunk elements.
static inline void run_general_part(const TileCode& program, const TileOperand* operands, int64_t row, int64_t column,
                                    int64_t rows, int64_t columns, float* out, int64_t out_stride,
                                    Registers& registers) {
  const int64_t n = rows * columns;
  Source sources[kMaxRegisters];
  for (int i = 0; i < program.inputs; ++i) {
    sources[i] = stretch_of(operands[i], row, column, rows, columns, registers.values[i]);
  }
  float* const target = out + row * out_stride + column;
  const bool flat = rows == 1 || out_stride == columns;
  for (int64_t i = 0; i < program.size; ++i) {
    const Instruction& in = program.code[i];
    const bool last = flat && i + 1 == program.size && in.dst == program.result;
    // A register that overwrites a gathered input reuses its memory; each loop reads an element before it writes it. A
    // spread value holds one vector only, so the other operands are read before it could be overwritten by a longer
    // stretch.
    float* dst = last ? target : registers.values[in.dst];
    Source a = sources[in.a], b = {}, c = {};
    if (arity(in.op) > 1) b = sources[in.b];
    if (arity(in.op) > 2) c = sources[in.c];
    float spread[3][kLanes];
    int spreads = 0;
    for (Source* source : {&a, &b, &c}) {
      if (source->step == 0 && source->data == dst) {
        float* copy = spread[spreads++];
        store(copy, load(source->data));
        source->data = copy;
      }
    }
    run_instruction(in, a, b, c, dst, n);
    if (last) return;
    sources[in.dst] = {registers.values[in.dst], kLanes};
  }
  const Source result = sources[program.result];
  if (result.step == 0) return run_light_tile({result.data, 0, 0}, nullptr, 0, rows, columns, target, out_stride);
  run_light_tile({result.data, columns, 1}, nullptr, 0, rows, columns, target, out_stride);
}

template <class Part>
FW_INLINE void for_each_part(int64_t rows, int64_t columns, Part part) {
  if (columns >= kChunk) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; c += kChunk) part(r, c, int64_t{1}, columns - c < kChunk ? columns - c : kChunk);
    }
  } else if (columns > 0) {
    const int64_t step = kChunk / columns;
    for (int64_t r = 0; r < rows; r += step) part(r, int64_t{0}, rows - r < step ? rows - r : step, columns);
  }
}

void run_tile_program(const TileCode& program, const TileOperand* operands, int64_t rows, int64_t columns, float* out,
                      int64_t out_row_stride) {
  // Rows that follow each other without a gap, in all operands, are one long row.
  bool flat = out_row_stride == columns;
  for (int i = 0; i < program.inputs && flat; ++i) {
    const TileOperand& operand = operands[i];
    flat = (operand.col_stride == 1 && operand.row_stride == columns) ||
           (operand.col_stride == 0 && operand.row_stride == 0);
  }
  if (flat) {
    columns *= rows;
    rows = 1;
  }
  Chain chain;
  if (make_chain(program, operands, chain)) {
    if (chain.heavy == 0) {
      run_light_tile(chain.start, chain.links, chain.size, rows, columns, out, out_row_stride);
      return;
    }
    alignas(64) float buffer[kChunk];
    for_each_part(rows, columns, [&](int64_t r, int64_t c, int64_t part_rows, int64_t part_columns) {
      run_mixed_part(chain, r, c, part_rows, part_columns, out, out_row_stride, buffer);
    });
    return;
  }
  Registers registers;
  for_each_part(rows, columns, [&](int64_t r, int64_t c, int64_t part_rows, int64_t part_columns) {
    run_general_part(program, operands, r, c, part_rows, part_columns, out, out_row_stride, registers);
  });
}

}  // namespace flywheel::kernels::FW_ISA
