// SPDX-License-Identifier: Apache-2.0
#include "kernels/program_scalar.h"

#include <cmath>
#include <limits>

namespace flywheel::kernels {
namespace {

constexpr double kSqrt2 = 1.41421356237309504880;
constexpr double kSqrt2OverPi = 0.79788456080286535588;

double sigmoid(double a) { return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a)); }
double softplus(double a) { return a > 0 ? a + std::log1p(std::exp(-a)) : std::log1p(std::exp(a)); }
double sign(double a) { return std::isnan(a) ? a : static_cast<double>((a > 0) - (a < 0)); }

// NaN wins, as in ONNX and NumPy, whichever side it is on.
double max_of(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : a < b ? b : a;
}
double min_of(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : b < a ? b : a;
}
double clip(double a, double low, double high) { return min_of(max_of(a, low), high); }

double divide(double a, double b, bool integer) {
  if (!integer) return a / b;
  return b == 0 ? 0 : std::trunc(a / b);
}

// The result has the divisor's sign (ONNX Mod with fmod = 0).
double floor_mod(double a, double b) {
  if (b == 0) return std::numeric_limits<double>::quiet_NaN();
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double apply(const Instruction& code, double a, double b, double c, bool integer) {
  switch (code.op) {
    case Opcode::kAdd: return a + b;
    case Opcode::kSub: return a - b;
    case Opcode::kMul: return a * b;
    case Opcode::kDiv: return divide(a, b, integer);
    case Opcode::kMin: return min_of(a, b);
    case Opcode::kMax: return max_of(a, b);
    case Opcode::kPow: return integer ? std::trunc(std::pow(a, b)) : std::pow(a, b);
    case Opcode::kMod: return integer && b == 0 ? 0 : floor_mod(a, b);
    case Opcode::kFmod: return integer && b == 0 ? 0 : std::fmod(a, b);
    case Opcode::kEqual: return a == b;
    case Opcode::kLess: return a < b;
    case Opcode::kLessEqual: return a <= b;
    case Opcode::kGreater: return a > b;
    case Opcode::kGreaterEqual: return a >= b;
    case Opcode::kAnd: return a != 0 && b != 0;
    case Opcode::kOr: return a != 0 || b != 0;
    case Opcode::kXor: return (a != 0) != (b != 0);
    case Opcode::kPRelu: return a < 0 ? a * b : a;
    case Opcode::kCopy: return a;
    case Opcode::kNeg: return -a;
    case Opcode::kAbs: return std::abs(a);
    case Opcode::kSqrt: return std::sqrt(a);
    case Opcode::kReciprocal: return divide(1, a, integer);
    case Opcode::kExp: return std::exp(a);
    case Opcode::kLog: return std::log(a);
    case Opcode::kErf: return std::erf(a);
    case Opcode::kSin: return std::sin(a);
    case Opcode::kCos: return std::cos(a);
    case Opcode::kTanh: return std::tanh(a);
    case Opcode::kSigmoid: return sigmoid(a);
    case Opcode::kFloor: return std::floor(a);
    case Opcode::kCeil: return std::ceil(a);
    case Opcode::kRound: return std::nearbyint(a);
    case Opcode::kSign: return sign(a);
    case Opcode::kNot: return a == 0;
    case Opcode::kIsNan: return std::isnan(a);
    case Opcode::kIsInf: return std::isinf(a);
    case Opcode::kRelu: return max_of(a, 0);
    case Opcode::kClip: return clip(a, code.x, code.y);
    case Opcode::kLeakyRelu: return a < 0 ? a * code.x : a;
    case Opcode::kElu: return a < 0 ? code.x * std::expm1(a) : a;
    case Opcode::kHardSigmoid: return clip(code.x * a + code.y, 0, 1);
    case Opcode::kHardSwish: return a * clip(a / 6 + 0.5, 0, 1);
    case Opcode::kSilu: return a * sigmoid(a);
    case Opcode::kGeluErf: return 0.5 * a * (1 + std::erf(a / kSqrt2));
    case Opcode::kGeluTanh: return 0.5 * a * (1 + std::tanh(kSqrt2OverPi * (a + 0.044715 * a * a * a)));
    case Opcode::kMish: return a * std::tanh(softplus(a));
    case Opcode::kSoftplus: return softplus(a);
    case Opcode::kSoftsign: return a / (1 + std::abs(a));
    case Opcode::kAddImm: return a + code.x;
    case Opcode::kMulImm: return a * code.x;
    case Opcode::kWhere: return a != 0 ? b : c;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double evaluate_scalar(const Program& program, const double* inputs) {
  if (program.empty()) return inputs[0];
  double registers[kMaxRegisters];
  for (int i = 0; i < program.inputs; ++i) registers[i] = inputs[i];
  const bool integer = program.compute == DType::kInt64;
  for (const Instruction& code : program.code) {
    const int arity = opcode_arity(code.op);
    registers[code.dst] =
        apply(code, registers[code.a], arity > 1 ? registers[code.b] : 0, arity > 2 ? registers[code.c] : 0, integer);
  }
  return registers[program.result];
}

}  // namespace flywheel::kernels
