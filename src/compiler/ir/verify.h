// SPDX-License-Identifier: Apache-2.0
// Checks a graph's invariants; the pass driver calls it after each pass, the importer at its end.
#pragma once

#include "compiler/ir/graph.h"

namespace flywheel::ir {

// Order, use lists, producers, unique names, known ops, operand counts, allowed attributes, types and shapes equal to
// what inference gives. kInternal naming the node: a pass broke the graph.
Status verify(const Graph& graph);

}  // namespace flywheel::ir
