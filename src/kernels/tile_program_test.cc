// SPDX-License-Identifier: Apache-2.0
// Tile programs on each ISA of this machine: elementary functions against libm in double precision, and random programs
// over random tiles against one element at a time.
#include "kernels/tile_program.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "kernels/program_scalar.h"

namespace flywheel::kernels {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= detect_machine().value().hardware_isa) list.push_back(isa);
  }
  return list;
}

// Floats of every exponent and sign, the special ones first.
std::vector<float> sampled_floats(uint32_t step) {
  std::vector<float> values = {0.0F,      -0.0F, 1.0F,      -1.0F,      INFINITY,
                               -INFINITY, NAN,   0x1p-149F, -0x1p-149F, 0x1.fffffep127F};
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return values;
}

// Distance in units of the last place of the exact value; a value that overflows float counts as the infinity it rounds
// to.
double error_in_ulp(float found, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded)) return std::isnan(found) ? 0 : INFINITY;
  if (found == rounded) return 0;
  if (std::isinf(rounded) || !std::isfinite(found)) return INFINITY;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

std::vector<float> run_flat(Isa isa, const Program& program, const std::vector<std::vector<float>>& inputs) {
  std::vector<float> out(inputs[0].size());
  std::vector<TileOperand> operands;
  for (const auto& input : inputs) operands.push_back({input.data(), static_cast<int64_t>(input.size()), 1});
  tile_program(isa)(program, operands.data(), 1, static_cast<int64_t>(out.size()), out.data(), 0);
  return out;
}

struct Unary {
  Opcode op;
  double ulp;       // allowed error
  double absolute;  // or this
  double x = 0, y = 0;
};

TEST(TileProgram, UnaryOperationsAreAccurate) {
  const std::vector<float> values = sampled_floats(20011);
  for (Isa isa : isas()) {
    for (const Unary& c : {Unary{Opcode::kCopy, 0, 0},
                           Unary{Opcode::kNeg, 0, 0},
                           Unary{Opcode::kAbs, 0, 0},
                           Unary{Opcode::kSqrt, 0, 0},
                           Unary{Opcode::kReciprocal, 0, 0},
                           Unary{Opcode::kFloor, 0, 0},
                           Unary{Opcode::kCeil, 0, 0},
                           Unary{Opcode::kRound, 0, 0},
                           Unary{Opcode::kSign, 0, 0},
                           Unary{Opcode::kNot, 0, 0},
                           Unary{Opcode::kIsNan, 0, 0},
                           Unary{Opcode::kIsInf, 0, 0},
                           Unary{Opcode::kRelu, 0, 0},
                           Unary{Opcode::kClip, 0, 0, -0.5, 6},
                           Unary{Opcode::kAddImm, 0.5, 0, 1.5},
                           Unary{Opcode::kMulImm, 0.5, 0, 0.25},
                           Unary{Opcode::kLeakyRelu, 0.5, 0, 0.125},
                           Unary{Opcode::kExp, 2, 0},
                           Unary{Opcode::kLog, 2, 0},
                           Unary{Opcode::kErf, 2.5, 0},
                           Unary{Opcode::kTanh, 3, 0},
                           Unary{Opcode::kSigmoid, 3, 1.2e-38},
                           Unary{Opcode::kElu, 3, 0, 1.0},
                           Unary{Opcode::kSoftplus, 3, 1.2e-38},
                           Unary{Opcode::kSoftsign, 1.5, 0},
                           Unary{Opcode::kSilu, 4, 1.3e-36},
                           Unary{Opcode::kHardSigmoid, 1.5, 1e-7, 0.25, 0.5},
                           Unary{Opcode::kHardSwish, 2, 2e-7},
                           Unary{Opcode::kMish, 4, 1e-36},
                           Unary{Opcode::kGeluErf, 4, 1e-7},
                           Unary{Opcode::kGeluTanh, 4, 3e-7},
                           Unary{Opcode::kSin, 3, 1e-7},
                           Unary{Opcode::kCos, 3, 1e-7}}) {
      Program program{.inputs = 1, .code = {{c.op, 1, 0, 0, 0, c.x, c.y}}, .result = 1};
      const auto out = run_flat(isa, program, {values});
      double worst = 0;
      float worst_at = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double in = values[i];
        double exact = evaluate_scalar(program, &in);
        const double ulp = std::abs(out[i] - exact) <= c.absolute ? 0 : error_in_ulp(out[i], exact);
        if (ulp > worst) {
          worst = ulp;
          worst_at = values[i];
        }
      }
      EXPECT_LE(worst, c.ulp) << isa_name(isa) << " " << opcode_name(c.op) << " of " << worst_at;
    }
  }
}

TEST(TileProgram, BinaryOperationsAreAccurate) {
  std::mt19937 random(1);
  const std::vector<float> specials = {0.0F,       -0.0F,       1.0F,  -1.0F,    2.0F,      -2.0F, 0.5F,
                                       3.0F,       -3.0F,       7.5F,  INFINITY, -INFINITY, NAN,   1e-40F,
                                       8388609.0F, 16777216.0F, 1e30F, -1e30F,   1e-30F};
  std::vector<float> a, b;
  for (float x : specials) {
    for (float y : specials) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  std::uniform_real_distribution<float> base(-4, 4), exponent(-30, 30);
  for (int i = 0; i < 20000; ++i) {
    a.push_back(i % 4 == 0 ? base(random) : std::exp2(exponent(random)));
    b.push_back(i % 3 == 0 ? std::round(base(random)) : base(random));
  }
  for (Isa isa : isas()) {
    for (int op = 0; op <= static_cast<int>(Opcode::kPRelu); ++op) {
      Program program{.inputs = 2, .code = {{static_cast<Opcode>(op), 2, 0, 1}}, .result = 2};
      const auto out = run_flat(isa, program, {a, b});
      const double allowed = program.code[0].op == Opcode::kPow ? 3 : program.code[0].op == Opcode::kMod ? 1 : 0.5;
      for (size_t i = 0; i < a.size(); ++i) {
        const double in[] = {a[i], b[i]};
        const double exact = evaluate_scalar(program, in);
        EXPECT_LE(error_in_ulp(out[i], exact), allowed)
            << isa_name(isa) << " " << a[i] << " " << opcode_name(program.code[0].op) << " " << b[i] << " gives "
            << out[i] << ", not " << exact;
      }
    }
  }
}

// The program with each instruction rounded to float, as the tile programs do.
float stepwise(const Program& program, std::vector<double> registers) {
  registers.resize(kMaxRegisters);
  for (const Instruction& in : program.code) {
    Program one{.inputs = 3, .code = {{in.op, 3, 0, 1, 2, in.x, in.y}}, .result = 3};
    const int arity = opcode_arity(in.op);
    const double operands[] = {registers[in.a], arity > 1 ? registers[in.b] : 0, arity > 2 ? registers[in.c] : 0};
    registers[in.dst] = static_cast<float>(evaluate_scalar(one, operands));
  }
  return static_cast<float>(registers[program.result]);
}

struct Tile {
  std::vector<float> data;
  TileOperand operand;
};

Tile random_tile(std::mt19937& random, int64_t rows, int64_t columns) {
  Tile tile;
  int64_t row_stride = 0, col_stride = 1;
  switch (random() % 6) {
    case 0: row_stride = columns; break;
    case 1: row_stride = columns + 5; break;
    case 2: row_stride = 0; break;
    case 3: row_stride = 1, col_stride = 0; break;
    case 4: row_stride = 0, col_stride = 0; break;
    default: row_stride = columns * 3, col_stride = 3; break;
  }
  tile.data.resize(rows * std::max(row_stride, int64_t{1}) + columns * std::max(col_stride, int64_t{1}));
  std::uniform_int_distribution<int> value(-40, 40);
  for (float& x : tile.data) x = static_cast<float>(value(random)) * 0.125F;
  tile.operand = {tile.data.data(), row_stride, col_stride};
  return tile;
}

Program random_program(std::mt19937& random, bool chain, bool exact) {
  // Operations whose float result is the rounded exact one, so that the comparison is of bits.
  constexpr Opcode kExact[] = {Opcode::kAdd,       Opcode::kSub,   Opcode::kMul,         Opcode::kMin,    Opcode::kMax,
                               Opcode::kPRelu,     Opcode::kLess,  Opcode::kEqual,       Opcode::kAnd,    Opcode::kCopy,
                               Opcode::kNeg,       Opcode::kAbs,   Opcode::kFloor,       Opcode::kRound,  Opcode::kRelu,
                               Opcode::kClip,      Opcode::kSign,  Opcode::kAddImm,      Opcode::kMulImm, Opcode::kNot,
                               Opcode::kLeakyRelu, Opcode::kWhere, Opcode::kGreaterEqual};
  constexpr Opcode kSmooth[] = {Opcode::kAdd,  Opcode::kMulImm, Opcode::kTanh,    Opcode::kSigmoid, Opcode::kErf,
                                Opcode::kSilu, Opcode::kClip,   Opcode::kGeluErf, Opcode::kRelu,    Opcode::kHardSwish};
  Program program;
  program.inputs = static_cast<uint8_t>(1 + random() % 4);
  const int length = static_cast<int>(1 + random() % 7);
  int last = static_cast<int>(random() % program.inputs), written = program.inputs;
  for (int i = 0; i < length; ++i) {
    Instruction in;
    in.op = exact ? kExact[random() % std::size(kExact)] : kSmooth[random() % std::size(kSmooth)];
    auto any = [&] { return static_cast<uint8_t>(random() % (chain ? program.inputs : written)); };
    in.a = chain || random() % 2 ? static_cast<uint8_t>(last) : any();
    in.b = any();
    in.c = any();
    if (random() % 3 == 0) std::swap(in.a, in.b);
    if (opcode_arity(in.op) == 1 && chain) in.a = static_cast<uint8_t>(last);
    in.x = -1.5;
    in.y = 2.5;
    in.dst = static_cast<uint8_t>(random() % 4 == 0 ? random() % written : written++);
    last = in.dst;
    program.code.push_back(in);
  }
  program.result = random() % 8 == 0 ? static_cast<uint8_t>(random() % written) : static_cast<uint8_t>(last);
  return program;
}

TEST(TileProgram, RandomProgramsOverRandomTiles) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const bool exact = round % 3 != 0;
    const Program program = random_program(random, round % 2 == 0, exact);
    ASSERT_TRUE(program.validate().is_ok()) << program.to_string();
    const int64_t rows = 1 + random() % 9, columns = random() % 8 == 0 ? 500 + random() % 600 : 1 + random() % 80;
    std::vector<Tile> tiles;
    std::vector<TileOperand> operands;
    for (int i = 0; i < program.inputs; ++i) {
      tiles.push_back(random_tile(random, rows, columns));
      operands.push_back(tiles.back().operand);
    }
    const int64_t out_stride = columns + (random() % 2) * 3;
    constexpr float kGuard = 12345.0F;
    for (Isa isa : isas()) {
      std::vector<float> out(rows * out_stride + 32, kGuard);
      tile_program(isa)(program, operands.data(), rows, columns, out.data(), out_stride);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          std::vector<double> in;
          for (const TileOperand& o : operands) in.push_back(o.data[r * o.row_stride + c * o.col_stride]);
          const float expected = stepwise(program, in), found = out[r * out_stride + c];
          if (std::isnan(expected) && std::isnan(found)) continue;
          if (exact) {
            ASSERT_EQ(found, expected) << program.to_string() << " " << isa_name(isa) << " at " << r << "," << c;
          } else {
            ASSERT_NEAR(found, expected, 2e-6 * (1 + std::abs(expected)))
                << program.to_string() << " " << isa_name(isa) << " at " << r << "," << c;
          }
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = columns; c < (r + 1 == rows ? columns + 32 : out_stride); ++c) {
          ASSERT_EQ(out[r * out_stride + c], kGuard) << program.to_string() << " wrote beyond its tile";
        }
      }
    }
  }
}

TEST(TileProgram, MayOverwriteAnOperandOfTheSameStrides) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const Program program = random_program(random, round % 2 == 0, true);
    const int64_t rows = 1 + random() % 5, columns = 1 + random() % 700;
    std::vector<Tile> tiles;
    std::vector<TileOperand> operands;
    for (int i = 0; i < program.inputs; ++i) {
      tiles.push_back(random_tile(random, rows, columns));
      if (i == 0) {
        tiles[0].data.resize(rows * columns, 0.5F);
        tiles[0].operand = {tiles[0].data.data(), columns, 1};
      }
      operands.push_back(tiles.back().operand);
    }
    operands[0].data = tiles[0].data.data();
    for (Isa isa : isas()) {
      std::vector<float> expected(rows * columns), in_place = tiles[0].data;
      tile_program(isa)(program, operands.data(), rows, columns, expected.data(), columns);
      std::vector<TileOperand> aliased = operands;
      aliased[0].data = in_place.data();
      tile_program(isa)(program, aliased.data(), rows, columns, in_place.data(), columns);
      for (int64_t i = 0; i < rows * columns; ++i) {
        if (std::isnan(expected[i])) continue;
        ASSERT_EQ(in_place[i], expected[i]) << program.to_string() << " " << isa_name(isa) << " at " << i;
      }
    }
  }
}

// A row gives the same bits whatever tile it is part of.
TEST(TileProgram, ResultsDoNotDependOnTheTile) {
  const Program program =
      Program::parse("r2 = add r0 r1; r3 = gelu_erf r2; r4 = exp r3; r5 = pow r4 r1 -> r5", 2).value();
  std::vector<float> a(1000), b(1000);
  for (int i = 0; i < 1000; ++i) {
    a[i] = static_cast<float>(i) * 0.003F - 2;
    b[i] = static_cast<float>(i % 17) * 0.1F;
  }
  for (Isa isa : isas()) {
    const auto whole = run_flat(isa, program, {a, b});
    for (int width : {1, 3, 16, 17, 333}) {
      for (int at = 0; at + width <= 1000; at += width) {
        std::vector<float> part(width);
        const TileOperand operands[] = {{a.data() + at, 0, 1}, {b.data() + at, 0, 1}};
        tile_program(isa)(program, operands, 1, width, part.data(), 0);
        for (int i = 0; i < width; ++i) ASSERT_EQ(part[i], whole[at + i]) << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace flywheel::kernels
