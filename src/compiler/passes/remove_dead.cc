// SPDX-License-Identifier: Apache-2.0
// remove_dead: nodes and constants that no output needs.
#include "compiler/passes/passes.h"

namespace flywheel::passes {
namespace {

Result<bool> run(ir::Graph& graph, const PassContext& context) {
  (void)context;
  return graph.erase_dead() > 0;
}

}  // namespace

const Pass kRemoveDead{"remove_dead", run, false};

}  // namespace flywheel::passes
