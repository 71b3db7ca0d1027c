// SPDX-License-Identifier: Apache-2.0
// A small straight-line program over elements: the one representation of pointwise chains and of epilogues of
// contractions (bias, residual, activation ...), on every device.
//
// Registers 0 .. n_inputs-1 hold the inputs; each instruction writes one further register (or overwrites one).
// Every input broadcasts, NumPy-style, to the shape of the output. All registers have the one compute type; inputs are
// converted to it when loaded and results converted from it when stored (float to integer truncates toward zero, to
// bool is != 0). Comparisons and logic give 1 or 0. In an epilogue input 0 is the accumulator of the contraction, input
// i the problem's operand `main operands + i - 1`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flywheel/dtype.h"
#include "flywheel/status.h"

namespace flywheel::kernels {

// The numbers are stored in engine files: add at the end only.
enum class Opcode : uint8_t {
  // binary: dst = a op b
  kAdd = 0,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kPow,
  kMod,
  kFmod,
  kEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kXor,
  kPRelu,  // kPRelu: a < 0 ? a * b : a
  // unary: dst = op(a), with immediates x and y
  kCopy = 32,
  kNeg,
  kAbs,
  kSqrt,
  kReciprocal,
  kExp,
  kLog,
  kErf,
  kSin,
  kCos,
  kTanh,
  kSigmoid,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kNot,
  kIsNan,
  kIsInf,
  kRelu,
  kClip,  // clip to [x, y]
  kLeakyRelu,
  kElu,          // alpha = x
  kHardSigmoid,  // max(0, min(1, x * a + y))
  kHardSwish,
  kSilu,
  kGeluErf,
  kGeluTanh,
  kMish,
  kSoftplus,
  kSoftsign,
  kAddImm,
  kMulImm,  // a + x, a * x
  // ternary: dst = a != 0 ? b : c
  kWhere = 96,
};

std::string_view opcode_name(Opcode op);
int opcode_arity(Opcode op);  // 1, 2 or 3

inline constexpr int kMaxRegisters = 32;

struct Instruction {
  Opcode op = Opcode::kCopy;
  uint8_t dst = 0, a = 0, b = 0, c = 0;
  double x = 0, y = 0;
  bool operator==(const Instruction&) const = default;
};

struct Program {
  DType compute = DType::kFloat32;  // kFloat32, kFloat64 or kInt64
  uint8_t inputs = 0;
  std::vector<Instruction> code;
  uint8_t result = 0;  // the register that is stored

  bool empty() const { return code.empty() && result == 0; }  // an identity epilogue
  bool operator==(const Program&) const = default;
  // Every register read was written or is an input, all are < kMaxRegisters, opcodes known. Engine files are checked
  // so.
  Status validate() const;
  // "r2 = add r0 r1; r2 = relu r2 -> r2"; parse() reads it back. A prefix "f64:" or "i64:" gives another compute type.
  std::string to_string() const;
  static Result<Program> parse(std::string_view text, int inputs);
};

}  // namespace flywheel::kernels
