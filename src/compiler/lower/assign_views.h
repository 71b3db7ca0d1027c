// SPDX-License-Identifier: Apache-2.0
// Decides where each value lies before any step is made: which are views of others, which are written in place of a
// Concat's part or straight into a graph output. Used by lower.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/lower/view.h"

namespace flywheel::lower {

struct ViewAssignment {
  std::vector<std::unique_ptr<Storage>> storages;
  std::map<const ir::Value*, View> views;
  // Nodes whose output is a view of their operand: they need no step.
  std::map<const ir::Node*, bool> elided;
  std::set<const ir::Value*> elided_outputs;  // the same for each output (some parts of a Split may need a copy)
  // Concat operands that were not written in place: (node, operand) needs a copy step. All others do not.
  std::map<std::pair<const ir::Node*, size_t>, View> concat_copies;
  // Graph outputs that still have to be copied from their value's view: output index -> destination.
  std::map<size_t, View> output_copies;
};

// What a pure view operation (Reshape, Transpose, Slice, Split, Expand ...) makes of its operand's view; nullopt when
// it cannot be one.
std::optional<View> derived_view(const ir::Node& node, size_t output, const View& in);

ViewAssignment assign_views(const ir::Graph& graph);

}  // namespace flywheel::lower
