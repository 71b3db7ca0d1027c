// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/fused_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/ops/op.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Node;
using ir::Value;
using kernels::Instruction;
using kernels::Opcode;

// An instruction over slots: inputs first, then one slot for each instruction. Registers are assigned at the end.
struct Draft {
  Opcode op;
  int args[3] = {-1, -1, -1};
  double x = 0, y = 0;
};

bool is_power_of_two(double c) {
  int exponent = 0;
  return std::isfinite(c) && std::abs(std::frexp(c, &exponent)) == 0.5 && exponent > -100 && exponent < 100;
}

class Builder {
 public:
  Builder(DType compute, std::string& why) : compute_(compute), why_(why) {}

  int input(Value* value) {
    auto [it, is_new] = slots_.try_emplace(value, static_cast<int>(values_.size()));
    if (is_new) values_.push_back({value, {}});
    if (is_new) inputs_.push_back(value);
    return it->second;
  }

  void add_bias(Value* accumulator, Value* bias) {
    const int a = input(accumulator);
    const int b = input(bias);
    slots_[accumulator] = append({Opcode::kAdd, {a, b, -1}});
  }

  bool add(const Node& node, bool is_last) {
    Value* out = node.output();
    Instruction code = *ops::find_op(node.op())->instruction(node);
    const bool is_cast = node.op() == "Cast";
    for (Value* operand : node.inputs()) {
      if (!operand) return fail(fmt::format("{} lacks an operand", node.describe()));
      const bool internal = internal_.count(operand) > 0;
      const bool exact = operand->dtype == compute_ || operand->dtype == DType::kBool;
      if (!exact && (internal || !is_cast)) {
        return fail(fmt::format("{} takes {} where the others compute in {}", node.describe(),
                                dtype_name(operand->dtype), dtype_name(compute_)));
      }
    }
    const bool stores = is_last && is_cast;  // converts when its result is stored
    if (out->dtype != compute_ && out->dtype != DType::kBool && !stores) {
      return fail(fmt::format("{} gives {} where the others compute in {}", node.describe(), dtype_name(out->dtype),
                              dtype_name(compute_)));
    }
    internal_[out] = true;
    slots_[out] = is_cast ? cast(node, is_last) : emit(node, code);
    return true;
  }

  std::optional<FusedProgram> finish(Value* result) {
    FusedProgram fused;
    fused.inputs = inputs_;
    fused.program.compute = compute_;
    fused.program.inputs = static_cast<uint8_t>(inputs_.size());
    if (inputs_.size() >= kernels::kMaxRegisters) {
      fail(fmt::format("{} operands are more than the {} registers hold", inputs_.size(), kernels::kMaxRegisters));
      return std::nullopt;
    }
    int result_slot = slots_.at(result);
    if (values_[static_cast<size_t>(result_slot)].value && result_slot != 0) {
      result_slot = append({Opcode::kCopy, {result_slot, -1, -1}});  // only input 0 may be handed through as it is
    }
    merge_activations();
    if (!assign_registers(result_slot, fused.program)) return std::nullopt;
    return fused;
  }

 private:
  struct Slot {
    Value* value = nullptr;  // an input
    Draft draft;             // otherwise
  };

  bool fail(std::string why) {
    why_ = std::move(why);
    return false;
  }

  int append(Draft draft) {
    values_.push_back({nullptr, draft});
    return static_cast<int>(values_.size()) - 1;
  }

  int operand(Value* value) { return internal_.count(value) > 0 ? slots_.at(value) : input(value); }

  int cast(const Node& node, bool is_last) {
    const int x = operand(node.input(0));
    const bool to_bool = node.output()->dtype == DType::kBool && node.input(0)->dtype != DType::kBool;
    if (!to_bool || is_last) return x;  // loads and stores convert
    return append({Opcode::kNot, {append({Opcode::kNot, {x, -1, -1}}), -1, -1}});
  }

  int emit(const Node& node, const Instruction& code) {
    Draft draft{code.op, {-1, -1, -1}, code.x, code.y};
    const int arity = kernels::opcode_arity(code.op);
    if (arity == 2) {
      for (size_t constant : {size_t{1}, size_t{0}}) {
        std::optional<double> c = scalar_constant(node.input(constant));
        if (!c || (constant == 0 && code.op != Opcode::kAdd && code.op != Opcode::kMul)) continue;
        if (scalar_constant(node.input(1 - constant)) || !immediate(code.op, *c, draft)) continue;
        draft.args[0] = operand(node.input(1 - constant));
        return append(draft);
      }
    }
    for (int i = 0; i < arity; ++i) draft.args[i] = operand(node.input(static_cast<size_t>(i)));
    return append(draft);
  }

  // x op c as an instruction with an immediate, where that gives the same bits.
  bool immediate(Opcode op, double c, Draft& draft) const {
    if (compute_ == DType::kInt64 && std::abs(c) > 1e15) return false;
    if (op == Opcode::kAdd || op == Opcode::kSub) {
      draft.op = Opcode::kAddImm;
      draft.x = op == Opcode::kAdd ? c : -c;
      return true;
    }
    if (op == Opcode::kMul) {
      draft.op = Opcode::kMulImm;
      draft.x = c;
      return true;
    }
    if (op == Opcode::kDiv && compute_ != DType::kInt64 && is_power_of_two(c)) {
      draft.op = Opcode::kMulImm;
      draft.x = 1 / c;
      return true;
    }
    return false;
  }

  int count_uses(int slot) const {
    int uses = 0;
    for (const Slot& s : values_) {
      if (!s.value) uses += static_cast<int>(std::count(std::begin(s.draft.args), std::end(s.draft.args), slot));
    }
    return uses;
  }

  // x * sigmoid(x) and its kin become the one instruction that kernels have a fast form of.
  void merge_activations() {
    for (Slot& slot : values_) {
      if (slot.value || slot.draft.op != Opcode::kMul) continue;
      for (int gate : {1, 0}) {
        const int x = slot.draft.args[1 - gate];
        const int g = slot.draft.args[gate];
        const Slot& gated = values_[static_cast<size_t>(g)];
        if (gated.value || count_uses(g) != 1) continue;
        std::optional<Opcode> merged;
        if (gated.draft.op == Opcode::kSigmoid && gated.draft.args[0] == x) merged = Opcode::kSilu;
        if (gated.draft.op == Opcode::kHardSigmoid && gated.draft.args[0] == x && gated.draft.y == 0.5 &&
            std::abs(gated.draft.x - 1.0 / 6) < 1e-7) {
          merged = Opcode::kHardSwish;
        }
        if (gated.draft.op == Opcode::kTanh) {
          const int inner = gated.draft.args[0];
          const Slot& soft = values_[static_cast<size_t>(inner)];
          if (!soft.value && soft.draft.op == Opcode::kSoftplus && soft.draft.args[0] == x && count_uses(inner) == 1) {
            merged = Opcode::kMish;
          }
        }
        if (!merged) continue;
        slot.draft = {*merged, {x, -1, -1}};
        break;
      }
    }
  }

  // Every temporary gets the lowest register that is free; registers of inputs are never written.
  bool assign_registers(int result, kernels::Program& program) {
    std::vector<int> last_use(values_.size(), -1);
    std::vector<bool> needed(values_.size(), false);
    needed[static_cast<size_t>(result)] = true;
    for (size_t i = values_.size(); i-- > 0;) {
      if (!needed[i] || values_[i].value) continue;
      for (int arg : values_[i].draft.args) {
        if (arg < 0) continue;
        needed[static_cast<size_t>(arg)] = true;
        last_use[static_cast<size_t>(arg)] = std::max(last_use[static_cast<size_t>(arg)], static_cast<int>(i));
      }
    }
    last_use[static_cast<size_t>(result)] = static_cast<int>(values_.size());
    std::vector<int> reg(values_.size(), -1);
    std::vector<int> owner(kernels::kMaxRegisters, -1);  // slot that a register holds
    int next_input = 0;
    for (Value* value : inputs_) {
      auto slot = std::find_if(values_.begin(), values_.end(), [&](const Slot& s) { return s.value == value; });
      reg[static_cast<size_t>(slot - values_.begin())] = next_input++;
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].value || !needed[i]) continue;
      const Draft& draft = values_[i].draft;
      Instruction code;
      code.op = draft.op;
      code.x = draft.x;
      code.y = draft.y;
      uint8_t* sources[] = {&code.a, &code.b, &code.c};
      for (int k = 0; k < 3; ++k) {
        if (draft.args[k] >= 0) *sources[k] = static_cast<uint8_t>(reg[static_cast<size_t>(draft.args[k])]);
      }
      int chosen = next_input;
      while (chosen < kernels::kMaxRegisters && owner[static_cast<size_t>(chosen)] >= 0 &&
             last_use[static_cast<size_t>(owner[static_cast<size_t>(chosen)])] > static_cast<int>(i)) {
        ++chosen;
      }
      if (chosen == kernels::kMaxRegisters) return fail(fmt::format("it needs more than {} registers", chosen));
      owner[static_cast<size_t>(chosen)] = static_cast<int>(i);
      reg[i] = chosen;
      code.dst = static_cast<uint8_t>(chosen);
      program.code.push_back(code);
    }
    program.result = static_cast<uint8_t>(reg[static_cast<size_t>(result)]);
    return true;
  }

  DType compute_;
  std::string& why_;
  std::vector<Slot> values_;
  std::vector<Value*> inputs_;
  std::map<const Value*, int> slots_;      // where a value's register content is
  std::map<const Value*, bool> internal_;  // made by a node of the group
};

}  // namespace

std::optional<FusedProgram> fuse_program(std::span<Node* const> nodes, std::span<Value* const> leading, Value* bias,
                                         Value* result, DType compute, std::string& why) {
  Builder builder(compute, why);
  for (Value* value : leading) builder.input(value);
  if (bias) builder.add_bias(leading[0], bias);
  for (Node* node : nodes) {
    if (!builder.add(*node, node == nodes.back())) return std::nullopt;
  }
  return builder.finish(result);
}

}  // namespace flywheel::passes
