// SPDX-License-Identifier: Apache-2.0
// Passes are values: a name and a function over the graph, idempotent and deterministic. pipelines.cc lists them in
// order; the driver runs, verifies, times, dumps and can skip them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::passes {

// Computes a node whose inputs are all constant; kUnsupported when it cannot. Lowering gives one that runs reference
// kernels.
using Evaluator = std::function<Result<std::vector<ir::ConstTensor>>(const ir::Node&)>;

// Why something one would expect did not happen, e.g. {"fuse_epilogue", "relu", "not fused into Conv 'y': ..."}.
struct Remark {
  std::string pass;
  std::string node;  // the name of the node's first output
  std::string reason;
  bool operator==(const Remark&) const = default;
};

// What a pass may use besides the graph.
struct PassContext {
  Evaluator evaluator;                     // may be empty
  std::vector<Remark>* remarks = nullptr;  // may be null
  void remark(std::string_view pass, const ir::Node& node, std::string reason) const;
};

struct Pass {
  std::string_view name;
  // Returns whether it changed anything.
  Result<bool> (*run)(ir::Graph& graph, const PassContext& context);
  bool required = false;  // lowering relies on it: --disable-pass refuses
};

struct DriverOptions {
  std::string dump_dir;                    // "" = none; NN_<pass>.ir for each that changed something
  std::vector<std::string> disabled;       // kInvalidArgument for an unknown or required name
  Evaluator evaluator;                     // for fold_constants; may be empty: only simple operators are folded then
  std::vector<Remark>* remarks = nullptr;  // filled when given
};
struct PassTime {
  std::string name;
  double ms;
  bool changed;
};

Result<std::vector<PassTime>> run_passes(ir::Graph& graph, std::span<const Pass> pipeline,
                                         const DriverOptions& options);

// The CPU pipeline, in order (pipelines.cc). A pass may stand in it several times; disabling its name skips all of
// them.
std::span<const Pass> cpu_pipeline();
// Any pass by name, for tests and tools; null when unknown.
const Pass* find_pass(std::string_view name);

}  // namespace flywheel::passes
