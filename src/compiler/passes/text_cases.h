// SPDX-License-Identifier: Apache-2.0
// The cases of testdata/<pass>.ir, and the comparison of graphs that the tests of passes make. Tests only.
//
//   === what the case shows
//   graph @g { ... }            the pass's input
//   ---
//   graph @g { ... }            what it must become; or `unchanged`
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::passes {

struct TextCase {
  std::string title, before, after;  // after: empty when unchanged
};

// All cases of testdata/<name>.ir; a test failure and none when the file is not as described.
std::vector<TextCase> text_cases(const std::string& name);
// Parses, or fails the test and gives null.
std::unique_ptr<ir::Graph> parse_graph(const std::string& text);

// "" when both compute the same in the same order; else the first difference. Names of values other than inputs do not
// count.
std::string difference(const ir::Graph& a, const ir::Graph& b);
std::string full_text(const ir::Graph& graph);

}  // namespace flywheel::passes
