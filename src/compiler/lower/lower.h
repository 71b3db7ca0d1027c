// SPDX-License-Identifier: Apache-2.0
// Lowering: a graph after all passes becomes steps (one kernel problem each) over views of storage. build.cc calls
// lower(), chooses a tactic for each step (compiler/tune) and assembles the plan (assemble.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/lower/view.h"
#include "kernels/problem.h"

namespace flywheel::lower {

// A step before its tactic is chosen.
struct StepDraft {
  std::string name;
  kernels::Family family = kernels::Family::kCopy;
  std::vector<View> inputs, outputs;
  std::vector<DType> input_types, output_types;
  std::vector<const ir::ConstTensor*> constants;  // for each input; null when computed
  std::vector<std::string> output_names;
  std::vector<DimExpr> ints;
  std::vector<double> floats;
  kernels::Program program;
  std::vector<std::string> sources;
};

struct LoweredGraph {
  const ir::Graph* graph = nullptr;  // not owned; outlives this
  std::vector<std::unique_ptr<Storage>> storages;
  std::vector<std::unique_ptr<ir::ConstTensor>> own_constants;  // those that lowering made
  std::vector<StepDraft> steps;
};

// kUnsupported lists every node that has no kernel, with the reason; kInternal for a graph that the passes should not
// have left.
Result<LoweredGraph> lower(const ir::Graph& graph);

// The kernel problem of a step for given symbol values.
Result<kernels::Problem> problem_for(const StepDraft& step, const std::map<std::string, int64_t, std::less<>>& symbols);

}  // namespace flywheel::lower
