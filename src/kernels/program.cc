// SPDX-License-Identifier: Apache-2.0
#include "kernels/program.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace flywheel::kernels {
namespace {

struct OpcodeRow {
  Opcode op;
  std::string_view name;
  int arity, immediates;
};

constexpr OpcodeRow kRows[] = {
    {Opcode::kAdd, "add", 2, 0},
    {Opcode::kSub, "sub", 2, 0},
    {Opcode::kMul, "mul", 2, 0},
    {Opcode::kDiv, "div", 2, 0},
    {Opcode::kMin, "min", 2, 0},
    {Opcode::kMax, "max", 2, 0},
    {Opcode::kPow, "pow", 2, 0},
    {Opcode::kMod, "mod", 2, 0},
    {Opcode::kFmod, "fmod", 2, 0},
    {Opcode::kEqual, "equal", 2, 0},
    {Opcode::kLess, "less", 2, 0},
    {Opcode::kLessEqual, "less_equal", 2, 0},
    {Opcode::kGreater, "greater", 2, 0},
    {Opcode::kGreaterEqual, "greater_equal", 2, 0},
    {Opcode::kAnd, "and", 2, 0},
    {Opcode::kOr, "or", 2, 0},
    {Opcode::kXor, "xor", 2, 0},
    {Opcode::kPRelu, "prelu", 2, 0},
    {Opcode::kCopy, "copy", 1, 0},
    {Opcode::kNeg, "neg", 1, 0},
    {Opcode::kAbs, "abs", 1, 0},
    {Opcode::kSqrt, "sqrt", 1, 0},
    {Opcode::kReciprocal, "reciprocal", 1, 0},
    {Opcode::kExp, "exp", 1, 0},
    {Opcode::kLog, "log", 1, 0},
    {Opcode::kErf, "erf", 1, 0},
    {Opcode::kSin, "sin", 1, 0},
    {Opcode::kCos, "cos", 1, 0},
    {Opcode::kTanh, "tanh", 1, 0},
    {Opcode::kSigmoid, "sigmoid", 1, 0},
    {Opcode::kFloor, "floor", 1, 0},
    {Opcode::kCeil, "ceil", 1, 0},
    {Opcode::kRound, "round", 1, 0},
    {Opcode::kSign, "sign", 1, 0},
    {Opcode::kNot, "not", 1, 0},
    {Opcode::kIsNan, "is_nan", 1, 0},
    {Opcode::kIsInf, "is_inf", 1, 0},
    {Opcode::kRelu, "relu", 1, 0},
    {Opcode::kClip, "clip", 1, 2},
    {Opcode::kLeakyRelu, "leaky_relu", 1, 1},
    {Opcode::kElu, "elu", 1, 1},
    {Opcode::kHardSigmoid, "hard_sigmoid", 1, 2},
    {Opcode::kHardSwish, "hard_swish", 1, 0},
    {Opcode::kSilu, "silu", 1, 0},
    {Opcode::kGeluErf, "gelu_erf", 1, 0},
    {Opcode::kGeluTanh, "gelu_tanh", 1, 0},
    {Opcode::kMish, "mish", 1, 0},
    {Opcode::kSoftplus, "softplus", 1, 0},
    {Opcode::kSoftsign, "softsign", 1, 0},
    {Opcode::kAddImm, "add_imm", 1, 1},
    {Opcode::kMulImm, "mul_imm", 1, 1},
    {Opcode::kWhere, "where", 3, 0},
};

const OpcodeRow* find_row(Opcode op) {
  for (const OpcodeRow& row : kRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

const OpcodeRow* find_row(std::string_view name) {
  for (const OpcodeRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Cuts the text into words; "=", ";" and "->" are words of their own wherever they stand.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    size_t length = 0;
    if (rest_.starts_with("->")) {
      length = 2;
    } else if (!rest_.empty() && (rest_.front() == '=' || rest_.front() == ';')) {
      length = 1;
    } else {
      while (length < rest_.size() && rest_[length] != ' ' && rest_[length] != '=' && rest_[length] != ';') ++length;
    }
    std::string_view word = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return word;
  }

 private:
  std::string_view rest_;
};

Status expect(std::string_view found, std::string_view wanted) {
  if (found == wanted) return Status::ok();
  return invalid_argument(fmt::format("program text: expected '{}', found '{}'", wanted.empty() ? "the end" : wanted,
                                      found.empty() ? "the end" : found));
}

Result<uint8_t> parse_register(std::string_view word) {
  int number = -1;
  if (word.size() >= 2 && word.front() == 'r') {
    auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) number = -1;
  }
  if (number < 0 || number >= kMaxRegisters) {
    return invalid_argument(fmt::format("program text: '{}' is not a register r0 .. r{}", word, kMaxRegisters - 1));
  }
  return static_cast<uint8_t>(number);
}

Result<double> parse_immediate(std::string_view word) {
  double value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    return invalid_argument(fmt::format("program text: '{}' is not a number", word));
  }
  return value;
}

}  // namespace

std::string_view opcode_name(Opcode op) {
  const OpcodeRow* row = find_row(op);
  return row ? row->name : "unknown";
}

int opcode_arity(Opcode op) {
  const OpcodeRow* row = find_row(op);
  return row ? row->arity : 0;
}

Status Program::validate() const {
  if (compute != DType::kFloat32 && compute != DType::kFloat64 && compute != DType::kInt64) {
    return invalid_argument(fmt::format("compute type {} is not f32, f64 or i64", dtype_name(compute)));
  }
  if (inputs > kMaxRegisters) {
    return invalid_argument(fmt::format("{} inputs exceed the {} registers", inputs, kMaxRegisters));
  }
  if (empty()) return Status::ok();
  uint64_t written = (uint64_t{1} << inputs) - 1;
  auto readable = [&](uint8_t reg) { return reg < kMaxRegisters && (written >> reg & 1) != 0; };
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    const OpcodeRow* row = find_row(in.op);
    if (!row)
      return invalid_argument(fmt::format("instruction {} has the unknown opcode {}", i, static_cast<int>(in.op)));
    const uint8_t sources[] = {in.a, in.b, in.c};
    for (int s = 0; s < row->arity; ++s) {
      if (!readable(sources[s])) {
        return invalid_argument(
            fmt::format("instruction {} ({}) reads r{}, which nothing wrote", i, row->name, sources[s]));
      }
    }
    if (in.dst >= kMaxRegisters) {
      return invalid_argument(fmt::format("instruction {} ({}) writes r{}; the last register is r{}", i, row->name,
                                          in.dst, kMaxRegisters - 1));
    }
    written |= uint64_t{1} << in.dst;
  }
  if (!readable(result)) return invalid_argument(fmt::format("the result is r{}, which nothing wrote", result));
  return Status::ok();
}

std::string Program::to_string() const {
  std::string text;
  if (compute == DType::kFloat64) text = "f64: ";
  if (compute == DType::kInt64) text = "i64: ";
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    const OpcodeRow* row = find_row(in.op);
    text += fmt::format("{}r{} = {}", i == 0 ? "" : "; ", in.dst, row ? row->name : "unknown");
    const uint8_t sources[] = {in.a, in.b, in.c};
    const double immediates[] = {in.x, in.y};
    for (int s = 0; row && s < row->arity; ++s) text += fmt::format(" r{}", sources[s]);
    for (int s = 0; row && s < row->immediates; ++s) text += fmt::format(" {}", immediates[s]);
  }
  return text + fmt::format("{}-> r{}", code.empty() ? "" : " ", result);
}

Result<Program> Program::parse(std::string_view text, int inputs) {
  Program program;
  if (inputs < 0 || inputs > kMaxRegisters) {
    return invalid_argument(fmt::format("program text: {} inputs; at most {} are possible", inputs, kMaxRegisters));
  }
  program.inputs = static_cast<uint8_t>(inputs);
  for (DType type : {DType::kFloat64, DType::kInt64}) {
    const std::string prefix = fmt::format("{}:", dtype_name(type));
    if (text.starts_with(prefix)) {
      program.compute = type;
      text.remove_prefix(prefix.size());
      break;
    }
  }
  Words words(text);
  std::string_view word = words.next();
  while (word != "->") {
    Instruction in;
    FW_ASSIGN_OR_RETURN(in.dst, parse_register(word));
    FW_RETURN_IF_ERROR(expect(words.next(), "="));
    const std::string_view name = words.next();
    const OpcodeRow* row = find_row(name);
    if (!row) return invalid_argument(fmt::format("program text: unknown operation '{}'", name));
    in.op = row->op;
    uint8_t* sources[] = {&in.a, &in.b, &in.c};
    double* immediates[] = {&in.x, &in.y};
    for (int s = 0; s < row->arity; ++s) {
      FW_ASSIGN_OR_RETURN(*sources[s], parse_register(words.next()));
    }
    for (int s = 0; s < row->immediates; ++s) {
      FW_ASSIGN_OR_RETURN(*immediates[s], parse_immediate(words.next()));
    }
    program.code.push_back(in);
    word = words.next();
    if (word == ";") {
      word = words.next();
    } else {
      FW_RETURN_IF_ERROR(expect(word, "->"));
    }
  }
  FW_ASSIGN_OR_RETURN(program.result, parse_register(words.next()));
  FW_RETURN_IF_ERROR(expect(words.next(), ""));
  FW_RETURN_IF_ERROR(program.validate());
  return program;
}

}  // namespace flywheel::kernels
