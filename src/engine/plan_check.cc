// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/plan_table.h"
#include "kernels/tactic.h"

namespace flywheel::engine {
namespace {

constexpr size_t kMaxExprs = 1 << 20;
constexpr double kMaxLatencyMs = 1e9;  // beyond any run; in nanoseconds it still fits 64 bits
constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 46;

Status damaged(std::string what) { return corrupt(fmt::format("damaged engine: {}; rebuild it", what)); }

Status check_expr(const Expr& expr, size_t symbols) {
  if (!can_evaluate(expr)) return damaged("a shape expression is malformed or too long");
  for (const ExprCode& code : expr) {
    if (code.op > DimExpr::Op::kMax) return damaged("a shape expression has an unknown operation");
    if (code.op == DimExpr::Op::kSymbol && (code.value < 0 || static_cast<size_t>(code.value) >= symbols)) {
      return damaged("a shape expression uses an unknown symbol");
    }
  }
  return Status::ok();
}

class Checker {
 public:
  Checker(const Plan& plan, uint64_t weights_bytes) : plan_(plan), weights_bytes_(weights_bytes) {}

  Status run() {
    if (plan_.exprs.size() > kMaxExprs) return damaged("too many shape expressions");
    for (const Expr& expr : plan_.exprs) FW_RETURN_IF_ERROR(check_expr(expr, plan_.symbols.size()));
    if (plan_.arena_bytes > kMaxArenaBytes)
      return damaged(fmt::format("it asks for an arena of {} bytes", plan_.arena_bytes));
    for (const auto& [a, b] : plan_.equalities) {
      if (!valid(a) || !valid(b)) return damaged("an equality has a bad index");
    }
    std::set<std::string> names;
    for (const IoTensor& io : plan_.inputs) {
      FW_RETURN_IF_ERROR(check_io(io, names));
      FW_RETURN_IF_ERROR(check_profile(io));
    }
    names.clear();
    for (const IoTensor& io : plan_.outputs) FW_RETURN_IF_ERROR(check_io(io, names));
    for (const Symbol& symbol : plan_.symbols) {
      if (symbol.input < 0 || static_cast<size_t>(symbol.input) >= plan_.inputs.size() || symbol.dim < 0 ||
          static_cast<size_t>(symbol.dim) >= plan_.inputs[static_cast<size_t>(symbol.input)].dims.size()) {
        return damaged(fmt::format("symbol '{}' is read from an input dim that does not exist", symbol.name));
      }
    }
    for (const Step& step : plan_.steps) {
      if (Status status = check_step(step); !status.is_ok())
        return status.with_context(fmt::format("step '{}'", step.name));
    }
    return check_latency_curve();
  }

 private:
  Status check_latency_curve() const {
    int64_t last = 0;
    for (const auto& [batch, ms] : plan_.latency_curve) {
      // Written so that NaN fails.
      if (batch <= last || !(ms >= 0 && ms <= kMaxLatencyMs)) {
        return damaged(
            fmt::format("its latency curve has {} ms for batch size {} after batch size {}", ms, batch, last));
      }
      last = batch;
    }
    return Status::ok();
  }

  bool valid(ExprId id) const { return id >= 0 && static_cast<size_t>(id) < plan_.exprs.size(); }
  bool valid(const std::vector<ExprId>& ids) const {
    return std::all_of(ids.begin(), ids.end(), [&](ExprId id) { return valid(id); });
  }

  Status check_io(const IoTensor& io, std::set<std::string>& names) const {
    if (static_cast<int>(io.dtype) >= kDTypeCount || io.dims.size() > kMaxRank || !valid(io.dims) ||
        io.dim_texts.size() != io.dims.size()) {
      return damaged(fmt::format("input or output '{}' is malformed", io.name));
    }
    if (!names.insert(io.name).second) return damaged(fmt::format("two inputs or outputs are called '{}'", io.name));
    return Status::ok();
  }

  static Status check_profile(const IoTensor& io) {
    const size_t rank = io.dims.size();
    bool good = io.min.size() == rank && io.opt.size() == rank && io.max.size() == rank;
    for (size_t d = 0; good && d < rank; ++d) good = 0 <= io.min[d] && io.min[d] <= io.opt[d] && io.opt[d] <= io.max[d];
    return good ? Status::ok() : damaged(fmt::format("the profile of input '{}' is malformed", io.name));
  }

  Status check_operand(const Operand& operand, bool output) const {
    if (static_cast<int>(operand.dtype) >= kDTypeCount || operand.dims.size() > kMaxRank ||
        operand.dims.size() != operand.strides.size() || !valid(operand.dims) || !valid(operand.strides) ||
        (operand.offset != -1 && !valid(operand.offset))) {
      return damaged("an operand is malformed");
    }
    uint64_t limit = 0;
    switch (operand.space) {
      case Space::kArena: limit = plan_.arena_bytes; break;
      case Space::kWeights: limit = weights_bytes_; break;
      case Space::kInput:
        return !output && operand.base < plan_.inputs.size() ? Status::ok() : damaged("an operand names a wrong input");
      case Space::kOutput:
        return operand.base < plan_.outputs.size() ? Status::ok()
                                                   : damaged("an operand names an output that does not exist");
      case Space::kNone: return output ? damaged("an output has no storage") : Status::ok();
      default: return damaged("an operand is in an unknown space");
    }
    if (output && operand.space == Space::kWeights) return damaged("a step would write to the weights");
    if (operand.base > limit || operand.max_bytes > limit - operand.base) {
      return damaged("an operand lies outside its section");
    }
    return Status::ok();
  }

  Status check_step(const Step& step) const {
    if (static_cast<int>(step.family) < 1 || static_cast<int>(step.family) >= kernels::kFamilyCount)
      return damaged("unknown kernel family");
    if (kernels::find_tactic(step.family, step.tactic) == nullptr) {
      return incompatible(fmt::format("this version has no kernel '{}': rebuild the engine", step.tactic));
    }
    if (step.constant.size() != step.inputs.size() || step.outputs.empty() || !valid(step.ints) ||
        step.output_names.size() != step.outputs.size()) {
      return damaged("operands do not match");
    }
    for (const Operand& operand : step.inputs) FW_RETURN_IF_ERROR(check_operand(operand, false));
    for (const Operand& operand : step.outputs) FW_RETURN_IF_ERROR(check_operand(operand, true));
    if (Status status = step.program.validate(); !status.is_ok()) return damaged(status.message());
    if (step.packed_offset % kBufferAlignment != 0 || step.packed_offset > weights_bytes_ ||
        step.packed_bytes > weights_bytes_ - step.packed_offset) {
      return damaged("packed weights lie outside their section");
    }
    return Status::ok();
  }

  const Plan& plan_;
  uint64_t weights_bytes_;
};

}  // namespace

Status check_plan(const Plan& plan, uint64_t weights_bytes) { return Checker(plan, weights_bytes).run(); }

}  // namespace flywheel::engine
