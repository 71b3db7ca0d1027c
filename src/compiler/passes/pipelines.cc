// SPDX-License-Identifier: Apache-2.0
// The order of passes. Each group leaves the graph in a form that the next one looks for; why a pass comes where it
// does is said here.
#include <algorithm>
#include <vector>

#include "compiler/passes/passes.h"

namespace flywheel::passes {

std::span<const Pass> cpu_pipeline() {
  static const std::vector<Pass> kPasses = {
      // What exporters leave behind: shape arithmetic above all.
      kRemoveDead,
      kRemoveIdentity,
      kFoldShapes,
      kFoldConstants,
      // One spelling.
      kFoldBatchNorm,  // before what is left of them is decomposed
      kDecompose,
      kFoldConstants,
      kCanonicalize,
      kFoldBatchNorm,  // constant Muls and Adds after convolutions
      kCanonicalizeProducts,
      kRemoveIdentity,
      kFoldConstants,
      kCommonSubexpressions,  // before patterns: they ask what else uses a value
      kSimplifyMasks,
      kRemoveIdentity,
      kSimplifyMasks,
      kSimplifyMoves,
      kCanonicalizeProducts,
      // Patterns.
      kMergeSiblingGathers,
      kFuseLayerNorm,
      kFuseGelu,
      kFuseAttention,
      kSimplifyMasks,
      kMergeSiblingGemms,
      kSimplifyMoves,
      // Layout: all that follows works on the order in which tensors are stored.
      kToNhwc,
      kSimplifyMoves,
      kAbsorbTransposes,
      kSimplifyMoves,
      kFoldConstants,
      kRemoveIdentity,
      kCommonSubexpressions,
      // What is left of elementwise operators.
      kFuseEpilogue,
      kFusePointwise,
      kRemoveDead,
  };
  return kPasses;
}

const Pass* find_pass(std::string_view name) {
  const std::span<const Pass> passes = cpu_pipeline();
  auto found = std::find_if(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; });
  return found == passes.end() ? nullptr : &*found;
}

}  // namespace flywheel::passes
