// SPDX-License-Identifier: Apache-2.0
// Decides which nodes work on tensors stored channels-last, so that the fewest bytes are moved: a minimum cut between
// the nodes that must (convolutions, pools, resizes) and those that must not. Read-only on the graph; to_nhwc carries
// it out.
#pragma once

#include <map>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/passes/moves.h"

namespace flywheel::passes {

struct NodeLayout {
  bool moved_in = false;   // reads its layout operands in their other storage order
  bool moved_out = false;  // and gives its outputs so
};

struct LayoutPlan {
  // The other storage order of each value of rank >= 3: channels-last, or what follows from it through reshapes.
  std::map<const ir::Value*, Perm> perm;
  std::map<const ir::Node*, NodeLayout> nodes;
  // For nodes that read moved operands: the storage order in which they read operand 0 (elementwise: all).
  std::map<const ir::Node*, Perm> perm_in;
};

// Conv, ConvTranspose, pools and Resize that are still NCHW (NCW for one spatial dim).
bool is_spatial(const ir::Node& node);
// Operands whose storage order the node's layout is about: all of an elementwise node's or a Concat's, else the first.
std::vector<size_t> layout_operands(const ir::Node& node);
// The storage order `perm` of an operand reaches the output's order by dropping the reduced dims.
Perm perm_without(const Perm& perm, const std::vector<size_t>& dropped);
// Axes of a Reduce or ArgMax, normalized; all of them when none are named.
std::vector<size_t> reduced_axes(const ir::Node& node);
bool keeps_dims(const ir::Node& node);
bool is_reduction(const ir::Node& node);

LayoutPlan plan_layout(const ir::Graph& graph);

}  // namespace flywheel::passes
