// SPDX-License-Identifier: Apache-2.0
// Runs a graph on the reference kernels, one step after the other: folds constants while compiling and is the oracle of
// pass tests. Slow and plain; no state between calls.
#pragma once

#include <span>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::lower {

// Inputs in the graph's order, with shapes that fit it. kUnsupported where lowering refuses, kInvalidArgument for
// shapes or data.
Result<std::vector<ir::ConstTensor>> interpret(const ir::Graph& graph, std::span<const ir::ConstTensor> inputs);

// One node whose operands are all constant. kUnsupported when it has no kernel.
Result<std::vector<ir::ConstTensor>> evaluate_node(const ir::Node& node);

}  // namespace flywheel::lower
