// SPDX-License-Identifier: Apache-2.0
// Operators that compute each element from the operands' elements at the same place, after broadcasting: one
// kernels::Instruction each. Where operands are small integer vectors whose elements are known (shapes), so are the
// results: elementwise_fold.h.
//   LeakyRelu, Elu{alpha}  HardSigmoid{alpha, beta}  Clip{min, max}  Gelu{approximate: "none" | "tanh"}  Mod{fmod}
//   Cast{to}
#include <fmt/format.h>

#include <limits>

#include "compiler/ops/elementwise_fold.h"
#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

using kernels::Instruction;
using kernels::Opcode;

template <Opcode kCode>
std::optional<Instruction> plain(const ir::Node&) {
  Instruction instruction;
  instruction.op = kCode;
  return instruction;
}

enum class Types { kNumbers, kFloats, kBools, kAny };

Status check_types(const ir::Node& node, Types types) {
  FW_RETURN_IF_ERROR(require_same_dtype(node));
  DType dtype = node.input(0)->dtype;
  if (types == Types::kFloats) return require_float(node, 0);
  if (types == Types::kNumbers && dtype == DType::kBool)
    return invalid_argument("its operands are bool; expected numbers");
  if (types == Types::kBools && dtype != DType::kBool) {
    return invalid_argument(fmt::format("its operands are {}; expected bool", dtype_name(dtype)));
  }
  return Status::ok();
}

template <Types kTypes, bool kGivesBool>
Status infer_elementwise(ir::Node& node) {
  FW_RETURN_IF_ERROR(check_types(node, kTypes));
  FW_ASSIGN_OR_RETURN(SymShape shape, broadcast_operands(node));
  set_output(node, 0, kGivesBool ? DType::kBool : node.input(0)->dtype, std::move(shape));
  set_elements_of(node, 0, fold_elementwise(node));
  return Status::ok();
}

template <Opcode kCode>
Op unary(std::string_view name) {
  return {name, 1, 1, 1, 1, {}, infer_elementwise<Types::kNumbers, false>, plain<kCode>};
}

template <Opcode kCode>
Op float_unary(std::string_view name) {
  return {name, 1, 1, 1, 1, {}, infer_elementwise<Types::kFloats, false>, plain<kCode>};
}

template <Opcode kCode>
Op binary(std::string_view name) {
  return {name, 2, 2, 1, 1, {}, infer_elementwise<Types::kNumbers, false>, plain<kCode>};
}

template <Opcode kCode>
Op comparison(std::string_view name) {
  return {name, 2, 2, 1, 1, {}, infer_elementwise<Types::kNumbers, true>, plain<kCode>};
}

template <Opcode kCode>
Op logic(std::string_view name) {
  return {name, 2, 2, 1, 1, {}, infer_elementwise<Types::kBools, true>, plain<kCode>};
}

template <Opcode kCode>
std::optional<Instruction> with_alpha(const ir::Node& node) {
  Instruction instruction;
  instruction.op = kCode;
  instruction.x = node.float_or("alpha", kCode == Opcode::kLeakyRelu ? 0.01 : 1.0);
  return instruction;
}

std::optional<Instruction> hard_sigmoid(const ir::Node& node) {
  Instruction instruction;
  instruction.op = Opcode::kHardSigmoid;
  instruction.x = node.float_or("alpha", 0.2);
  instruction.y = node.float_or("beta", 0.5);
  return instruction;
}

std::optional<Instruction> clip(const ir::Node& node) {
  Instruction instruction;
  instruction.op = Opcode::kClip;
  // What an integer program can hold; floats have infinities.
  double largest = is_float(node.input(0)->dtype) ? std::numeric_limits<double>::infinity() : 0x1p62;
  instruction.x = node.float_or("min", -largest);
  instruction.y = node.float_or("max", largest);
  return instruction;
}

std::optional<Instruction> gelu(const ir::Node& node) {
  Instruction instruction;
  instruction.op = node.string_or("approximate", "none") == "tanh" ? Opcode::kGeluTanh : Opcode::kGeluErf;
  return instruction;
}

Status infer_gelu(ir::Node& node) {
  std::string approximate = node.string_or("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return invalid_argument(fmt::format("attribute approximate is \"{}\"; expected \"none\" or \"tanh\"", approximate));
  }
  return infer_elementwise<Types::kFloats, false>(node);
}

std::optional<Instruction> modulo(const ir::Node& node) {
  Instruction instruction;
  instruction.op = node.int_or("fmod", 0) != 0 ? Opcode::kFmod : Opcode::kMod;
  return instruction;
}

Status infer_mod(ir::Node& node) {
  if (node.int_or("fmod", 0) == 0 && is_float(node.input(0)->dtype)) {
    return invalid_argument(
        fmt::format("its operands are {}; Mod of floats needs fmod=1", dtype_name(node.input(0)->dtype)));
  }
  return infer_elementwise<Types::kNumbers, false>(node);
}

Status infer_cast(ir::Node& node) {
  if (!node.attributes.contains("to")) return invalid_argument("attribute to is missing");
  FW_ASSIGN_OR_RETURN(DType to, dtype_attribute(node, "to", DType::kFloat32));
  set_output(node, 0, to, node.input(0)->shape);
  set_elements_of(node, 0, fold_elementwise(node));
  return Status::ok();
}

Status infer_where(ir::Node& node) {
  if (node.input(0)->dtype != DType::kBool) {
    return invalid_argument(fmt::format("its condition is {}; expected bool", dtype_name(node.input(0)->dtype)));
  }
  FW_RETURN_IF_ERROR(require_same_dtype(node, 1));
  FW_ASSIGN_OR_RETURN(SymShape shape, broadcast_operands(node));
  set_output(node, 0, node.input(1)->dtype, std::move(shape));
  set_elements_of(node, 0, fold_elementwise(node));
  return Status::ok();
}

Status infer_prelu(ir::Node& node) {
  FW_RETURN_IF_ERROR(check_types(node, Types::kNumbers));
  FW_RETURN_IF_ERROR(require_broadcasts_to(node, node.input(1)->shape, node.input(0)->shape, "the slope"));
  set_output(node, 0, node.input(0)->dtype, node.input(0)->shape);
  return Status::ok();
}

}  // namespace

extern const Op kAdd = binary<Opcode::kAdd>("Add");
extern const Op kSub = binary<Opcode::kSub>("Sub");
extern const Op kMul = binary<Opcode::kMul>("Mul");
extern const Op kDiv = binary<Opcode::kDiv>("Div");
extern const Op kMin = binary<Opcode::kMin>("Min");
extern const Op kMax = binary<Opcode::kMax>("Max");
extern const Op kPow = binary<Opcode::kPow>("Pow");
extern const Op kMod{"Mod", 2, 2, 1, 1, {"fmod"}, infer_mod, modulo};
extern const Op kEqual{"Equal", 2, 2, 1, 1, {}, infer_elementwise<Types::kAny, true>, plain<Opcode::kEqual>};
extern const Op kLess = comparison<Opcode::kLess>("Less");
extern const Op kLessOrEqual = comparison<Opcode::kLessEqual>("LessOrEqual");
extern const Op kGreater = comparison<Opcode::kGreater>("Greater");
extern const Op kGreaterOrEqual = comparison<Opcode::kGreaterEqual>("GreaterOrEqual");
extern const Op kAnd = logic<Opcode::kAnd>("And");
extern const Op kOr = logic<Opcode::kOr>("Or");
extern const Op kXor = logic<Opcode::kXor>("Xor");
extern const Op kPRelu{"PRelu", 2, 2, 1, 1, {}, infer_prelu, plain<Opcode::kPRelu>};
extern const Op kWhere{"Where", 3, 3, 1, 1, {}, infer_where, plain<Opcode::kWhere>};

extern const Op kNeg = unary<Opcode::kNeg>("Neg");
extern const Op kAbs = unary<Opcode::kAbs>("Abs");
extern const Op kSign = unary<Opcode::kSign>("Sign");
extern const Op kRelu = unary<Opcode::kRelu>("Relu");
extern const Op kClip{"Clip", 1, 1, 1, 1, {"min", "max"}, infer_elementwise<Types::kNumbers, false>, clip};
extern const Op kSqrt = float_unary<Opcode::kSqrt>("Sqrt");
extern const Op kReciprocal = float_unary<Opcode::kReciprocal>("Reciprocal");
extern const Op kExp = float_unary<Opcode::kExp>("Exp");
extern const Op kLog = float_unary<Opcode::kLog>("Log");
extern const Op kErf = float_unary<Opcode::kErf>("Erf");
extern const Op kSin = float_unary<Opcode::kSin>("Sin");
extern const Op kCos = float_unary<Opcode::kCos>("Cos");
extern const Op kTanh = float_unary<Opcode::kTanh>("Tanh");
extern const Op kSigmoid = float_unary<Opcode::kSigmoid>("Sigmoid");
extern const Op kFloor = float_unary<Opcode::kFloor>("Floor");
extern const Op kCeil = float_unary<Opcode::kCeil>("Ceil");
extern const Op kRound = float_unary<Opcode::kRound>("Round");
extern const Op kHardSwish = float_unary<Opcode::kHardSwish>("HardSwish");
extern const Op kSilu = float_unary<Opcode::kSilu>("Silu");
extern const Op kMish = float_unary<Opcode::kMish>("Mish");
extern const Op kSoftplus = float_unary<Opcode::kSoftplus>("Softplus");
extern const Op kSoftsign = float_unary<Opcode::kSoftsign>("Softsign");
extern const Op kNot{"Not", 1, 1, 1, 1, {}, infer_elementwise<Types::kBools, true>, plain<Opcode::kNot>};
extern const Op kIsNaN{"IsNaN", 1, 1, 1, 1, {}, infer_elementwise<Types::kFloats, true>, plain<Opcode::kIsNan>};
extern const Op kIsInf{"IsInf", 1, 1, 1, 1, {}, infer_elementwise<Types::kFloats, true>, plain<Opcode::kIsInf>};
extern const Op kLeakyRelu{
    "LeakyRelu", 1, 1, 1, 1, {"alpha"}, infer_elementwise<Types::kFloats, false>, with_alpha<Opcode::kLeakyRelu>};
extern const Op kElu{"Elu", 1, 1, 1, 1, {"alpha"}, infer_elementwise<Types::kFloats, false>, with_alpha<Opcode::kElu>};
extern const Op kHardSigmoid{"HardSigmoid", 1, 1, 1, 1, {"alpha", "beta"}, infer_elementwise<Types::kFloats, false>,
                             hard_sigmoid};
extern const Op kGelu{"Gelu", 1, 1, 1, 1, {"approximate"}, infer_gelu, gelu};
extern const Op kCast{"Cast", 1, 1, 1, 1, {"to"}, infer_cast, plain<Opcode::kCopy>};

}  // namespace flywheel::ops
