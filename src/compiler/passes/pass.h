// SPDX-License-Identifier: Apache-2.0
// Passes are values: a name and a function over the graph, idempotent and deterministic. pipelines.cc lists them in order; the driver
// runs, verifies, times, dumps and can skip them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::passes {

struct Pass {
  std::string_view name;
  // Returns whether it changed anything.
  Result<bool> (*run)(ir::Graph& graph);
  bool required = false;  // lowering relies on it: --disable-pass refuses
};

struct DriverOptions {
  std::string dump_dir;                // "" = none; NN_<pass>.ir for each that changed something
  std::vector<std::string> disabled;   // kInvalidArgument for an unknown or required name
};
struct PassTime {
  std::string name;
  double ms;
  bool changed;
};

Result<std::vector<PassTime>> run_passes(ir::Graph& graph, std::span<const Pass> pipeline, const DriverOptions& options);

// The CPU pipeline, in order (pipelines.cc).
std::span<const Pass> cpu_pipeline();
// Any pass by name, for tests and tools; null when unknown.
const Pass* find_pass(std::string_view name);

}  // namespace flywheel::passes
