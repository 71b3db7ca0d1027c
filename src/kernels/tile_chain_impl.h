// SPDX-License-Identifier: Apache-2.0
// Programs that are a chain: each instruction works on the result of the one before and on inputs. That is what nearly
// all epilogues are. Light instructions run in vector registers over a group of vectors, one dispatch a group and
// instruction; heavy ones (exp and its kin) run over a stretch that stays in L1. Part of the ISA sources of
// tile_program.
#pragma once

#include "kernels/tile_ops_impl.h"
#include "kernels/tile_program_isa.h"

namespace flywheel::kernels::FW_ISA {

inline constexpr int kChainLimit = 16;
// Vectors that light instructions hold at once: enough to hide latency and dispatch, with registers left for operands.
inline constexpr int kGroup = kVectorRegisters / 4;

enum class Reads : uint8_t { kChain, kChainAndInput, kInputAndChain, kChainTwice };

struct Link {
  Opcode op;
  Reads reads;
  bool light;
  TileOperand input;  // for kChainAndInput and kInputAndChain
  const Instruction* instruction;
};

struct Chain {
  TileOperand start;
  Link links[kChainLimit];
  int size = 0;
  int heavy = 0;
};

// False when the program is not a chain, or an input has columns that are neither adjacent nor broadcast.
static inline bool make_chain(const TileCode& program, const TileOperand* operands, Chain& chain) {
  if (program.size == 0 || program.size > kChainLimit) return false;
  uint32_t inputs = program.inputs >= 32 ? ~0U : (1U << program.inputs) - 1;  // registers that still hold an input
  int current = program.code[0].a;
  auto usable = [&](int reg) {
    return (inputs >> reg & 1) != 0 && (operands[reg].col_stride == 0 || operands[reg].col_stride == 1);
  };
  if (!usable(current)) return false;
  chain.start = operands[current];
  for (int64_t i = 0; i < program.size; ++i) {
    const Instruction& in = program.code[i];
    Link& link = chain.links[i];
    link.op = in.op;
    link.instruction = &in;
    link.light = is_light(in.op);
    const int operand_count = arity(in.op);
    if (operand_count == 3 || (operand_count == 2 && !link.light)) return false;
    if (operand_count == 1) {
      if (in.a != current) return false;
      link.reads = Reads::kChain;
    } else if (in.a == current && in.b == current) {
      link.reads = Reads::kChainTwice;
    } else if (in.a == current && usable(in.b)) {
      link.reads = Reads::kChainAndInput;
      link.input = operands[in.b];
    } else if (in.b == current && usable(in.a)) {
      link.reads = Reads::kInputAndChain;
      link.input = operands[in.a];
    } else {
      return false;
    }
    current = in.dst;
    inputs &= ~(1U << current);
    if (!link.light) ++chain.heavy;
  }
  chain.size = static_cast<int>(program.size);
  return program.result == current;
}

#define FW_EACH(expression)                                                                 \
  do {                                                                                      \
    _Pragma("GCC unroll 8") for (int j = 0; j < kRows * kColumns; ++j) acc[j] = expression; \
  } while (false)

// kRows x kColumns vectors from (row, column) on; with kMasked the single column of vectors has `rest` lanes.
template <int kRows, int kColumns, bool kMasked>
FW_INLINE void load_group(const TileOperand& from, int64_t row, int64_t column, int64_t rest, Vf* out) {
  const float* data = from.data + row * from.row_stride;
  if (from.col_stride == 0) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vf value = splat(data[r * from.row_stride]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) out[r * kColumns + c] = value;
    }
    return;
  }
  data += column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const float* p = data + r * from.row_stride + c * kLanes;
      out[r * kColumns + c] = kMasked ? load_first(p, rest) : load(p);
    }
  }
}

template <int kRows, int kColumns, bool kMasked>
static inline void run_light(const TileOperand& start, const Link* links, int count, int64_t row, int64_t column,
                             int64_t rest, float* out, int64_t out_stride) {
  Vf acc[kRows * kColumns];
  load_group<kRows, kColumns, kMasked>(start, row, column, rest, acc);
  for (int i = 0; i < count; ++i) {
    const Link& link = links[i];
    const Vf x = splat(static_cast<float>(link.instruction->x)), y = splat(static_cast<float>(link.instruction->y));
    Vf in[kRows * kColumns];
    if (link.reads == Reads::kChainAndInput || link.reads == Reads::kInputAndChain) {
      load_group<kRows, kColumns, kMasked>(link.input, row, column, rest, in);
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < kRows * kColumns; ++j) in[j] = acc[j];
    }
    const bool swapped = link.reads == Reads::kInputAndChain;
    switch (link.op) {
      case Opcode::kAdd: FW_EACH(acc[j] + in[j]); break;
      case Opcode::kMul: FW_EACH(acc[j] * in[j]); break;
      case Opcode::kSub:
        if (swapped) {
          FW_EACH(in[j] - acc[j]);
        } else {
          FW_EACH(acc[j] - in[j]);
        }
        break;
      case Opcode::kDiv:
        if (swapped) {
          FW_EACH(in[j] / acc[j]);
        } else {
          FW_EACH(acc[j] / in[j]);
        }
        break;
      case Opcode::kMin: FW_EACH(min_nan(acc[j], in[j])); break;
      case Opcode::kMax: FW_EACH(max_nan(acc[j], in[j])); break;
      case Opcode::kPRelu:
        if (swapped) {
          FW_EACH(leaky_relu(in[j], acc[j]));
        } else {
          FW_EACH(leaky_relu(acc[j], in[j]));
        }
        break;
      case Opcode::kNeg: FW_EACH(negate(acc[j])); break;
      case Opcode::kAbs: FW_EACH(abs(acc[j])); break;
      case Opcode::kSqrt: FW_EACH(sqrt(acc[j])); break;
      case Opcode::kRelu: FW_EACH(relu(acc[j])); break;
      case Opcode::kClip: FW_EACH(clip(acc[j], x, y)); break;
      case Opcode::kLeakyRelu: FW_EACH(leaky_relu(acc[j], x)); break;
      case Opcode::kHardSigmoid: FW_EACH(hard_sigmoid(acc[j], x, y)); break;
      case Opcode::kHardSwish: FW_EACH(hard_swish(acc[j])); break;
      case Opcode::kAddImm: FW_EACH(acc[j] + x); break;
      case Opcode::kMulImm: FW_EACH(acc[j] * x); break;
      default: break;  // kCopy
    }
  }
  float* p = out + row * out_stride + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      float* at = p + r * out_stride + c * kLanes;
      if constexpr (kMasked) {
        store_first(at, acc[r * kColumns + c], rest);
      } else {
        store(at, acc[r * kColumns + c]);
      }
    }
  }
}

#undef FW_EACH

// Light links over a tile; `count` 0 copies.
static inline void run_light_tile(const TileOperand& start, const Link* links, int count, int64_t rows, int64_t columns,
                                  float* out, int64_t out_stride) {
  int64_t row = 0;
  // Narrow tiles: four rows at once, so that a group is not cut short by the end of each row.
  if (columns < kGroup * kLanes) {
    constexpr int kWide = kGroup / 4;
    for (; row + 4 <= rows; row += 4) {
      int64_t c = 0;
      for (; c + kWide * kLanes <= columns; c += kWide * kLanes) {
        run_light<4, kWide, false>(start, links, count, row, c, kLanes, out, out_stride);
      }
      if constexpr (kWide > 1) {
        for (; c + kLanes <= columns; c += kLanes)
          run_light<4, 1, false>(start, links, count, row, c, kLanes, out, out_stride);
      }
      if (c < columns) run_light<4, 1, true>(start, links, count, row, c, columns - c, out, out_stride);
    }
  }
  for (; row < rows; ++row) {
    int64_t c = 0;
    for (; c + kGroup * kLanes <= columns; c += kGroup * kLanes) {
      run_light<1, kGroup, false>(start, links, count, row, c, kLanes, out, out_stride);
    }
    for (; c + kLanes <= columns; c += kLanes)
      run_light<1, 1, false>(start, links, count, row, c, kLanes, out, out_stride);
    if (c < columns) run_light<1, 1, true>(start, links, count, row, c, columns - c, out, out_stride);
  }
}

// A part of a tile that fits in `buffer` (rows x columns floats): runs of light links go from where the value is to
// where it must go, heavy ones over the packed buffer as one stretch.
static inline void run_mixed_part(const Chain& chain, int64_t row, int64_t column, int64_t rows, int64_t columns,
                                  float* out, int64_t out_stride, float* buffer) {
  auto part_of = [&](TileOperand operand) {
    operand.data += row * operand.row_stride + column * operand.col_stride;
    return operand;
  };
  float* const target = out + row * out_stride + column;
  TileOperand value = part_of(chain.start);
  Link links[kChainLimit];
  int i = 0;
  while (i < chain.size) {
    int count = 0;
    for (; i < chain.size && chain.links[i].light; ++i, ++count) {
      links[count] = chain.links[i];
      if (links[count].reads != Reads::kChain && links[count].reads != Reads::kChainTwice) {
        links[count].input = part_of(links[count].input);
      }
    }
    if (i == chain.size) return run_light_tile(value, links, count, rows, columns, target, out_stride);
    const bool flat = value.data == buffer || (value.col_stride == 1 && (rows == 1 || value.row_stride == columns));
    if (count > 0 || !flat) {
      run_light_tile(value, links, count, rows, columns, buffer, columns);
      value = {buffer, columns, 1};
    }
    const bool last = i + 1 == chain.size && (rows == 1 || out_stride == columns);
    run_instruction(*chain.links[i].instruction, {value.data, kLanes}, {}, {}, last ? target : buffer, rows * columns);
    if (last) return;
    value = {buffer, columns, 1};
    ++i;
  }
  run_light_tile(value, links, 0, rows, columns, target, out_stride);
}

}  // namespace flywheel::kernels::FW_ISA
