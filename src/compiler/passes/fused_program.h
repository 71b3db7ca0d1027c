// SPDX-License-Identifier: Apache-2.0
// From a group of elementwise nodes to one kernels::Program: what fuse_epilogue and fuse_pointwise share.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::passes {

struct FusedProgram {
  kernels::Program program;
  std::vector<ir::Value*> inputs;  // program input i; the leading values first, then in order of first use
};

// One element of `result` computed by `nodes` (topological order, all elementwise, the last one making `result`) from
// values that none of them makes, with `compute` as the type of all registers. `leading` values become inputs 0, 1, ...
// whether used or not. `bias`, when given, is added to leading[0] first. On failure `why` says what stands against it:
// a type that the registers cannot hold exactly, or too many registers.
std::optional<FusedProgram> fuse_program(std::span<ir::Node* const> nodes, std::span<ir::Value* const> leading,
                                         ir::Value* bias, ir::Value* result, DType compute, std::string& why);

}  // namespace flywheel::passes
