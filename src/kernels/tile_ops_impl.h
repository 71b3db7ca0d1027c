// SPDX-License-Identifier: Apache-2.0
// What each instruction does to vectors, and loops that run one instruction over a stretch of memory. Part of the ISA
// sources of tile_program.
#pragma once

#include "kernels/simd/vector_math.h"
#include "kernels/tile_program.h"

namespace flywheel::kernels::FW_ISA {

// As opcode_arity(), without the table.
FW_INLINE int arity(Opcode op) { return op < Opcode::kCopy ? 2 : op < Opcode::kWhere ? 1 : 3; }

FW_INLINE Vf truth(Vm m) { return select(m, splat(1.0F), splat(0.0F)); }
FW_INLINE Vm is_true(Vf x) { return x != splat(0.0F); }

// C's fmod is exact, which only its repeated subtraction of exponents gives; it is rare enough for one lane at a time.
FW_INLINE Vf fmod_lanes(Vf x, Vf y) {
  float a[kLanes], b[kLanes];
  store(a, x);
  store(b, y);
  for (int i = 0; i < kLanes; ++i) a[i] = ::fmodf(a[i], b[i]);
  return load(a);
}

// Python's modulus: the result has the divisor's sign.
FW_INLINE Vf mod(Vf x, Vf y) {
  const Vf zero = splat(0.0F), rest = fmod_lanes(x, y);
  const Vm wrong_sign = (rest != zero) & ((rest < zero) ^ (y < zero));
  return select(wrong_sign, rest + y, select(rest == zero, copy_sign(zero, y), rest));
}

FW_INLINE Vf sign(Vf x) { return select(is_nan(x) | (x == splat(0.0F)), x, copy_sign(splat(1.0F), x)); }

// Instructions that chains keep in registers (run_light in tile_chain_impl.h): a couple of machine instructions, so
// that storing and loading between them would cost as much as the work itself.
static inline bool is_light(Opcode op) {
  switch (op) {
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kDiv:
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kPRelu:
    case Opcode::kCopy:
    case Opcode::kNeg:
    case Opcode::kAbs:
    case Opcode::kSqrt:
    case Opcode::kRelu:
    case Opcode::kClip:
    case Opcode::kLeakyRelu:
    case Opcode::kHardSigmoid:
    case Opcode::kHardSwish:
    case Opcode::kAddImm:
    case Opcode::kMulImm: return true;
    default: return false;
  }
}

FW_INLINE Vf hard_swish(Vf a) {
  return a * max(splat(0.0F), min(splat(1.0F), fma(a, splat(1.0F / 6.0F), splat(0.5F))));
}
FW_INLINE Vf hard_sigmoid(Vf a, Vf x, Vf y) { return max(splat(0.0F), min(splat(1.0F), fma(a, x, y))); }
FW_INLINE Vf leaky_relu(Vf a, Vf slope) { return select(a < splat(0.0F), a * slope, a); }
FW_INLINE Vf relu(Vf a) { return max(splat(0.0F), a); }
FW_INLINE Vf clip(Vf a, Vf low, Vf high) { return min(high, max(low, a)); }

// One operand of an instruction over a stretch: vector i is at data + i * step, where step is kLanes, or 0 for a value
// that was spread over kLanes floats.
struct Source {
  const float* data;
  int64_t step;
};

// n floats; nothing beyond them is touched. `out` may be a source's data.
template <class Op>
FW_INLINE void loop_unary(Source a, float* out, int64_t n, Op op) {
  int64_t i = 0;
  const float* pa = a.data;
  for (; i + kLanes <= n; i += kLanes, pa += a.step) store(out + i, op(load(pa)));
  if (i < n) store_first(out + i, op(load_first(pa, n - i)), n - i);
}

template <class Op>
FW_INLINE void loop_binary(Source a, Source b, float* out, int64_t n, Op op) {
  int64_t i = 0;
  const float *pa = a.data, *pb = b.data;
  for (; i + kLanes <= n; i += kLanes, pa += a.step, pb += b.step) store(out + i, op(load(pa), load(pb)));
  if (i < n) store_first(out + i, op(load_first(pa, n - i), load_first(pb, n - i)), n - i);
}

static inline void loop_where(Source a, Source b, Source c, float* out, int64_t n) {
  int64_t i = 0;
  const float *pa = a.data, *pb = b.data, *pc = c.data;
  for (; i + kLanes <= n; i += kLanes, pa += a.step, pb += b.step, pc += c.step) {
    store(out + i, select(is_true(load(pa)), load(pb), load(pc)));
  }
  if (i < n) {
    const int64_t rest = n - i;
    store_first(out + i, select(is_true(load_first(pa, rest)), load_first(pb, rest), load_first(pc, rest)), rest);
  }
}

#define FW_UNARY(opcode, expression) \
  case Opcode::opcode:               \
    return loop_unary(a, out, n, [=](Vf p) FW_LAMBDA { return expression; })
#define FW_BINARY(opcode, expression) \
  case Opcode::opcode: return loop_binary(a, b, out, n, [=](Vf p, Vf q) FW_LAMBDA { return expression; })

// One instruction over n floats.
[[gnu::noinline]] static void run_instruction(const Instruction& in, Source a, Source b, Source c, float* out,
                                              int64_t n) {
  const Vf x = splat(static_cast<float>(in.x)), y = splat(static_cast<float>(in.y));
  const Vf zero = splat(0.0F), one = splat(1.0F);
  switch (in.op) {
    FW_BINARY(kAdd, p + q);
    FW_BINARY(kSub, p - q);
    FW_BINARY(kMul, p * q);
    FW_BINARY(kDiv, p / q);
    FW_BINARY(kMin, min_nan(p, q));
    FW_BINARY(kMax, max_nan(p, q));
    FW_BINARY(kPow, pow(p, q));
    FW_BINARY(kMod, mod(p, q));
    FW_BINARY(kFmod, fmod_lanes(p, q));
    FW_BINARY(kEqual, truth(p == q));
    FW_BINARY(kLess, truth(p < q));
    FW_BINARY(kLessEqual, truth(p <= q));
    FW_BINARY(kGreater, truth(q < p));
    FW_BINARY(kGreaterEqual, truth(q <= p));
    FW_BINARY(kAnd, truth(is_true(p) & is_true(q)));
    FW_BINARY(kOr, truth(is_true(p) | is_true(q)));
    FW_BINARY(kXor, truth(is_true(p) ^ is_true(q)));
    FW_BINARY(kPRelu, leaky_relu(p, q));
    FW_UNARY(kCopy, p);
    FW_UNARY(kSqrt, sqrt(p));
    FW_UNARY(kReciprocal, one / p);
    FW_UNARY(kExp, exp(p));
    FW_UNARY(kLog, log(p));
    FW_UNARY(kErf, erf(p));
    FW_UNARY(kSin, sine<0>(p));
    FW_UNARY(kCos, sine<1>(p));
    FW_UNARY(kTanh, tanh(p));
    FW_UNARY(kSigmoid, sigmoid(p));
    FW_UNARY(kFloor, floor(p));
    FW_UNARY(kCeil, ceil(p));
    FW_UNARY(kRound, round_even(p));
    FW_UNARY(kSign, sign(p));
    FW_UNARY(kNot, truth(p == zero));
    FW_UNARY(kIsNan, truth(is_nan(p)));
    FW_UNARY(kIsInf, truth(abs(p) == splat(INFINITY)));
    FW_UNARY(kElu, select(p < zero, x * expm1(min(zero, p)), p));
    FW_UNARY(kSilu, silu(p));
    FW_UNARY(kGeluErf, gelu_erf(p));
    FW_UNARY(kGeluTanh, gelu_tanh(p));
    FW_UNARY(kMish, mish(p));
    FW_UNARY(kSoftplus, softplus(p));
    FW_UNARY(kSoftsign, p / (one + abs(p)));
    FW_UNARY(kNeg, negate(p));
    FW_UNARY(kAbs, abs(p));
    FW_UNARY(kRelu, relu(p));
    FW_UNARY(kClip, clip(p, x, y));
    FW_UNARY(kLeakyRelu, leaky_relu(p, x));
    FW_UNARY(kHardSigmoid, hard_sigmoid(p, x, y));
    FW_UNARY(kHardSwish, hard_swish(p));
    FW_UNARY(kAddImm, p + x);
    FW_UNARY(kMulImm, p * x);
    case Opcode::kWhere: return loop_where(a, b, c, out, n);
  }
}

#undef FW_UNARY
#undef FW_BINARY

}  // namespace flywheel::kernels::FW_ISA
