// SPDX-License-Identifier: Apache-2.0
// The reference of pointwise: every compute type, element type and stride, an instruction over a short stretch at a
// time. It is the oracle of the f32 tactics, and what runs integer and f64 programs (shape arithmetic, masks).
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/element.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/program_scalar.h"
#include "kernels/strided.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

constexpr int kStretch = 64;

int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrap_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Division by zero gives 0 and overflow wraps: an integer program never traps.
int64_t divide(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? wrap_sub(0, a) : a / b; }
int64_t remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrap_mul(result, base);
    base = wrap_mul(base, base);
  }
  return result;
}

int64_t to_int64(double x) { return cast_element<int64_t>(x); }

// Integer arithmetic where an operation has one; the others are computed in f64 and truncated.
int64_t apply_int64(const Instruction& in, int64_t a, int64_t b, int64_t c) {
  switch (in.op) {
    case Opcode::kAdd: return wrap_add(a, b);
    case Opcode::kSub: return wrap_sub(a, b);
    case Opcode::kMul: return wrap_mul(a, b);
    case Opcode::kDiv: return divide(a, b);
    case Opcode::kMin: return std::min(a, b);
    case Opcode::kMax: return std::max(a, b);
    case Opcode::kPow: return power(a, b);
    case Opcode::kMod: return floor_mod(a, b);
    case Opcode::kFmod: return remainder(a, b);
    case Opcode::kEqual: return a == b;
    case Opcode::kLess: return a < b;
    case Opcode::kLessEqual: return a <= b;
    case Opcode::kGreater: return a > b;
    case Opcode::kGreaterEqual: return a >= b;
    case Opcode::kAnd: return a != 0 && b != 0;
    case Opcode::kOr: return a != 0 || b != 0;
    case Opcode::kXor: return (a != 0) != (b != 0);
    case Opcode::kPRelu: return a < 0 ? wrap_mul(a, b) : a;
    case Opcode::kNeg: return wrap_sub(0, a);
    case Opcode::kAbs: return a < 0 ? wrap_sub(0, a) : a;
    case Opcode::kReciprocal: return divide(1, a);
    case Opcode::kCopy:
    case Opcode::kFloor:
    case Opcode::kCeil:
    case Opcode::kRound: return a;
    case Opcode::kSign: return (a > 0) - (a < 0);
    case Opcode::kNot: return a == 0;
    case Opcode::kIsNan:
    case Opcode::kIsInf: return 0;
    case Opcode::kRelu: return std::max<int64_t>(a, 0);
    case Opcode::kClip: return std::min(std::max(a, to_int64(std::ceil(in.x))), to_int64(std::floor(in.y)));
    case Opcode::kAddImm: return wrap_add(a, to_int64(in.x));
    case Opcode::kMulImm:
      return std::trunc(in.x) == in.x ? wrap_mul(a, to_int64(in.x)) : to_int64(static_cast<double>(a) * in.x);
    case Opcode::kWhere: return a != 0 ? b : c;
    default: break;
  }
  const Program one{.inputs = 1, .code = {{in.op, 1, 0, 0, 0, in.x, in.y}}, .result = 1};
  const double operand = static_cast<double>(a);
  return to_int64(evaluate_scalar(one, &operand));
}

template <class T>
class PointwiseReference final : public BoundKernel {
 public:
  explicit PointwiseReference(const Problem& problem) : program_(problem.program) {
    const TensorDesc& out = problem.outputs[0];
    std::vector<Dims> strides = {out.strides};
    for (const TensorDesc& in : problem.inputs) strides.push_back(broadcast_strides(in, out.dims));
    nest_ = LoopNest::make(out.dims, strides, LoopOrder::kAsGiven, 1);
    for (const TensorDesc& in : problem.inputs) types_.push_back(in.dtype);
    out_type_ = out.dtype;
    for (const Instruction& in : program_.code) {
      singles_.push_back({.inputs = 3, .code = {{in.op, 3, 0, 1, 2, in.x, in.y}}, .result = 3});
    }
  }

  void launch(const Operands& operands, Worker& worker) const noexcept override {
    const int rank = nest_.rank();
    const int64_t columns = nest_.extents[rank - 1];
    const int64_t parts = (columns + kStretch - 1) / kStretch;
    const auto [begin, end] = worker.share(nest_.points(0, rank - 1) * parts);
    T registers[kMaxRegisters][kStretch];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts, column = i % parts * kStretch;
      const int count = static_cast<int>(std::min<int64_t>(kStretch, columns - column));
      for (size_t k = 0; k < types_.size(); ++k) {
        const int64_t stride = nest_.strides[k + 1].back(), size = static_cast<int64_t>(dtype_size(types_[k]));
        const int64_t at = nest_.offset(static_cast<int>(k) + 1, row, rank - 1) + column * stride;
        const auto* data = static_cast<const std::byte*>(operands.inputs[k]) + at * size;
        for (int c = 0; c < count; ++c) registers[k][c] = load_element<T>(types_[k], data + c * stride * size);
      }
      for (size_t k = 0; k < program_.code.size(); ++k) run(k, registers, count);
      const int64_t stride = nest_.strides[0].back(), size = static_cast<int64_t>(dtype_size(out_type_));
      auto* data =
          static_cast<std::byte*>(operands.outputs[0]) + (nest_.offset(0, row, rank - 1) + column * stride) * size;
      for (int c = 0; c < count; ++c)
        store_element<T>(out_type_, data + c * stride * size, registers[program_.result][c]);
    }
  }

 private:
  void run(size_t index, T (*registers)[kStretch], int count) const {
    const Instruction& in = program_.code[index];
    const int arity = opcode_arity(in.op);
    const T *a = registers[in.a], *b = arity > 1 ? registers[in.b] : a, *c = arity > 2 ? registers[in.c] : a;
    T* dst = registers[in.dst];
    for (int i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, int64_t>) {
        dst[i] = apply_int64(in, a[i], b[i], c[i]);
      } else {
        const double values[] = {static_cast<double>(a[i]), static_cast<double>(b[i]), static_cast<double>(c[i])};
        dst[i] = static_cast<T>(evaluate_scalar(singles_[index], values));
      }
    }
  }

  Program program_;
  std::vector<Program> singles_;  // each instruction alone, so that its result is rounded to T
  LoopNest nest_;                 // operand 0 is the output
  std::vector<DType> types_;
  DType out_type_ = DType::kFloat32;
};

Status accepts_all(const Problem& problem, const Machine&) { return check_pointwise(problem); }

Result<std::unique_ptr<BoundKernel>> bind_reference(const Problem& problem, const Machine&, int) {
  FW_RETURN_IF_ERROR(check_pointwise(problem));
  switch (problem.program.compute) {
    case DType::kFloat64: return std::unique_ptr<BoundKernel>(std::make_unique<PointwiseReference<double>>(problem));
    case DType::kInt64: return std::unique_ptr<BoundKernel>(std::make_unique<PointwiseReference<int64_t>>(problem));
    default: return std::unique_ptr<BoundKernel>(std::make_unique<PointwiseReference<float>>(problem));
  }
}

}  // namespace

extern const Tactic pointwise_reference;
constinit const Tactic pointwise_reference{
    "pointwise_reference", Family::kPointwise, Isa::kPortable, accepts_all, nullptr, bind_reference};

}  // namespace flywheel::kernels
