// SPDX-License-Identifier: Apache-2.0
// An engine in memory: what the compiler writes and the runtime runs. format.md describes its file. Immutable once
// built.
//
// Everything that depends on shapes is an expression of the symbols, which are dims of inputs. Expressions are kept
// once in a table and referred to by index; a context evaluates the table for a new shape and looks values up.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_info.h"
#include "flywheel/dtype.h"
#include "flywheel/status.h"
#include "kernels/problem.h"
#include "tensor/dim_expr.h"

namespace flywheel::engine {

using ExprId = int32_t;  // index into Plan::exprs

struct ExprCode {
  DimExpr::Op op;
  int64_t value;  // kConst: the number; kSymbol: index into Plan::symbols; else unused
  bool operator==(const ExprCode&) const = default;
};
using Expr = std::vector<ExprCode>;  // postfix
inline constexpr size_t kMaxExprCode = 4096;
inline constexpr int kMaxExprDepth = 64;  // values on the evaluator's stack

// Within both limits, and every operation finds its operands: what check_plan() demands. The compiler asks before it
// writes.
bool can_evaluate(const Expr& expr);

struct Symbol {
  std::string name;
  int32_t input = 0, dim = 0;  // where its value is read
};

struct IoTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<ExprId> dims;
  std::vector<std::string> dim_texts;
  Dims min, opt, max;  // inputs: the profile
};

// Where an operand's storage is.
enum class Space : uint8_t {
  kArena = 0,
  kInput = 1,
  kOutput = 2,
  kWeights = 3,
  kNone = 4
};  // kNone: consumed by packing

struct Operand {
  Space space = Space::kNone;
  uint64_t base = 0;   // kArena, kWeights: byte offset; kInput, kOutput: index
  ExprId offset = -1;  // elements from the base; -1 = 0
  DType dtype = DType::kFloat32;
  std::vector<ExprId> dims, strides;
  uint64_t max_bytes = 0;  // extent at the profile's max, from base; what the loader checks against the section
};

struct Step {
  std::string name;
  kernels::Family family = kernels::Family::kCopy;
  std::string tactic;
  std::vector<Operand> inputs, outputs;
  std::vector<std::string> output_names;  // the values' names in the compiler's graph
  std::vector<bool> constant;             // of inputs
  std::vector<ExprId> ints;
  std::vector<double> floats;
  kernels::Program program;
  uint64_t packed_offset = 0, packed_bytes = 0;  // in the weights; 0 bytes = none
  std::vector<std::string> sources;
  std::string problem;
  double tuned_ms = 0;
};

struct Plan {
  std::string name;
  uint64_t model_hash = 0;
  Isa isa = Isa::kPortable;  // the most that any step's tactic needs
  std::vector<Symbol> symbols;
  std::vector<Expr> exprs;
  // Pairs that must be equal for a shape to be valid (two inputs that share a symbol, assumptions of broadcasting).
  std::vector<std::pair<ExprId, ExprId>> equalities;
  std::vector<IoTensor> inputs, outputs;
  std::vector<Step> steps;
  uint64_t arena_bytes = 0;
  uint64_t workspace_bytes = 0;  // at the profile's max with the thread count of the build; for information
  std::vector<std::pair<int64_t, double>> latency_curve;
  std::string build_record;  // JSON: machine, options, passes, remarks
};

// The problem of a step for given expression values. kInvalidArgument on overflow or a negative extent.
Result<kernels::Problem> bind_problem(const Step& step, std::span<const int64_t> values);

// All expressions for given input shapes. Checks the profile, symbols and equalities: kInvalidArgument names input and
// dim.
Result<std::vector<int64_t>> evaluate_exprs(const Plan& plan, std::span<const Dims> input_dims);

}  // namespace flywheel::engine
