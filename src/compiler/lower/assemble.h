// SPDX-License-Identifier: Apache-2.0
// The last stage: steps with chosen tactics become an engine::Plan and its weights section. Deterministic: the same
// steps and choices give the same bytes.
#pragma once

#include <string>
#include <vector>

#include "compiler/lower/lower.h"
#include "engine/plan.h"
#include "flywheel/compiler.h"
#include "kernels/tactic.h"

namespace flywheel::lower {

struct TacticChoice {
  const kernels::Tactic* tactic = nullptr;
  double ms = 0;  // measured at opt; 0 = by heuristic
};

// Where each symbol of the graph is read, and its values over the profile.
struct SymbolTable {
  std::vector<engine::Symbol> symbols;
  std::map<std::string, int64_t, std::less<>> min, opt, max;
};
// kInvalidArgument when the profile contradicts the graph (rank, fixed dims, one symbol with two ranges, min <= opt <=
// max).
Result<SymbolTable> bind_symbols(const ir::Graph& graph, const std::map<std::string, ProfileShape>& profile);

struct Assembled {
  engine::Plan plan;
  std::vector<std::byte> weights;
};
// Packs weights, plans memory, serialises extents. REQUIRES: one choice a step.
Result<Assembled> assemble(LoweredGraph& lowered, const std::vector<TacticChoice>& choices, const SymbolTable& symbols,
                           const std::map<std::string, ProfileShape>& profile, int threads, const Machine& machine);

}  // namespace flywheel::lower
