// SPDX-License-Identifier: Apache-2.0
// Every pass there is, one file each; pipelines.cc puts them in order. What each does is said at the top of its file.
#pragma once

#include "compiler/passes/pass.h"

namespace flywheel::passes {

extern const Pass kRemoveDead;
extern const Pass kRemoveIdentity;
extern const Pass kFoldShapes;
extern const Pass kFoldConstants;
extern const Pass kCommonSubexpressions;
extern const Pass kDecompose;
extern const Pass kCanonicalize;
extern const Pass kCanonicalizeProducts;
extern const Pass kSimplifyMasks;
extern const Pass kFoldBatchNorm;
extern const Pass kFuseLayerNorm;
extern const Pass kFuseGelu;
extern const Pass kFuseAttention;
extern const Pass kMergeSiblingGemms;
extern const Pass kMergeSiblingGathers;
extern const Pass kAbsorbTransposes;
extern const Pass kSimplifyMoves;
extern const Pass kToNhwc;
extern const Pass kFuseEpilogue;
extern const Pass kFusePointwise;

}  // namespace flywheel::passes
