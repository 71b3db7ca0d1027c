// SPDX-License-Identifier: Apache-2.0
// A small valid plan for tests of this room and of the runtime: y = x for x: f32[n, 4], n in 1..max_rows.
#pragma once

#include "engine/plan.h"
#include "kernels/tactic.h"

namespace flywheel::engine {

inline Plan copy_plan(int64_t max_rows = 8) {
  Plan plan;
  plan.name = "copy";
  plan.model_hash = 0x1234;
  plan.symbols = {{"n", 0, 0}};
  plan.exprs = {{{DimExpr::Op::kSymbol, 0}}, {{DimExpr::Op::kConst, 4}}, {{DimExpr::Op::kConst, 1}}};
  plan.inputs = {{"x", DType::kFloat32, {0, 1}, {"n", ""}, {1, 4}, {2, 4}, {max_rows, 4}}};
  plan.outputs = {{"y", DType::kFloat32, {0, 1}, {"n", ""}, {}, {}, {}}};
  const auto max_bytes = static_cast<uint64_t>(max_rows) * 16;
  Step step;
  step.name = "identity";
  step.family = kernels::Family::kCopy;
  step.tactic = kernels::tactics(kernels::Family::kCopy).back().name;
  step.inputs = {{Space::kInput, 0, -1, DType::kFloat32, {0, 1}, {1, 2}, max_bytes}};
  step.outputs = {{Space::kOutput, 0, -1, DType::kFloat32, {0, 1}, {1, 2}, max_bytes}};
  step.output_names = {"y"};
  step.constant = {false};
  step.sources = {"node_1"};
  step.tuned_ms = 0.5;
  plan.steps = {step};
  plan.latency_curve = {{1, 0.25}, {8, 1.5}};
  plan.build_record = "{}";
  return plan;
}

}  // namespace flywheel::engine
