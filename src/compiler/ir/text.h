// SPDX-License-Identifier: Apache-2.0
// The graph's text form, which prints and parses: pass tests are such files, --dump-passes writes them.
//
//   graph @classifier {
//     input %x: f32[batch, 3, 224, 224]
//     const %w: f32[64, 3, 7, 7] = random(seed=1, mean=0, std=0.1)   # tests; also `= [1, 2.5, 3]` and `= splat(0)`
//     %y = Conv(%x, %w, _) {strides: [2, 2], pads: [3, 3, 3, 3]} from ["conv1"]
//     %a, %b = Split(%y) {axis: 1, num_outputs: 2}
//     output %a as "left"
//     output %b as "right"
//   }
//
// `_` is an absent operand; `# ...` a comment. The printer adds the inferred type of each output (`%y: f32[...] =
// ...`); the parser runs inference and checks it against a type that is given. Attribute forms: 3, 1.5, "text", [1, 2],
// [1.0], ["a"], dims[batch, 3*n], const f32[2] [1, 2], program(2 inputs) "r2 = add r0 r1 -> r2", graph @body { ... }.
// Constants of more than 16 elements print as `= hash(<64 bits of content>)`, which does not parse back; print with
// PrintOptions::full_constants to get text that does.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compiler/ir/graph.h"

namespace flywheel::ir {

struct PrintOptions {
  bool full_constants = false;
  bool sources = true;
};
std::string print(const Graph& graph, const PrintOptions& options = {});

// kInvalidArgument with line and column.
Result<std::unique_ptr<Graph>> parse(std::string_view text);

}  // namespace flywheel::ir
