// SPDX-License-Identifier: Apache-2.0
// A small valid plan for tests of this room and of the runtime: y = x for x: f32[n, 4], n in 1..8.
#pragma once

#include "engine/plan.h"
#include "kernels/tactic.h"

namespace flywheel::engine {

inline Plan copy_plan() {
  Plan plan;
  plan.name = "copy";
  plan.model_hash = 0x1234;
  plan.symbols = {{"n", 0, 0}};
  plan.exprs = {{{DimExpr::Op::kSymbol, 0}}, {{DimExpr::Op::kConst, 4}}, {{DimExpr::Op::kConst, 1}}};
  plan.inputs = {{"x", DType::kFloat32, {0, 1}, {"n", ""}, {1, 4}, {2, 4}, {8, 4}}};
  plan.outputs = {{"y", DType::kFloat32, {0, 1}, {"n", ""}, {}, {}, {}}};
  Step step;
  step.name = "identity";
  step.family = kernels::Family::kCopy;
  step.tactic = kernels::tactics(kernels::Family::kCopy).back().name;
  step.inputs = {{Space::kInput, 0, -1, DType::kFloat32, {0, 1}, {1, 2}, 128}};
  step.outputs = {{Space::kOutput, 0, -1, DType::kFloat32, {0, 1}, {1, 2}, 128}};
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
