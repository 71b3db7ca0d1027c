// SPDX-License-Identifier: Apache-2.0
// Runs a pipeline: checks the graph after each pass, times it, writes dumps. Called by build and by tools; one thread.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/passes/pass.h"

namespace flywheel::passes {
namespace {

Status check_disabled(std::span<const Pass> pipeline, const std::vector<std::string>& disabled) {
  for (const std::string& name : disabled) {
    auto pass = std::find_if(pipeline.begin(), pipeline.end(), [&](const Pass& p) { return p.name == name; });
    if (pass == pipeline.end()) {
      std::vector<std::string_view> names;
      for (const Pass& p : pipeline) {
        if (std::find(names.begin(), names.end(), p.name) == names.end()) names.push_back(p.name);
      }
      return invalid_argument(
          fmt::format("there is no pass '{}' to disable; the passes are {}", name, fmt::join(names, ", ")));
    }
    if (pass->required) {
      return invalid_argument(fmt::format("pass '{}' cannot be disabled: what follows relies on it", name));
    }
  }
  return Status::ok();
}

Status dump(const ir::Graph& graph, const std::string& folder, int number, std::string_view pass) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = fmt::format("{}/{:02}_{}.ir", folder, number, pass);
  std::ofstream file(path);
  file << ir::print(graph);
  file.close();
  if (error || !file) {
    return invalid_argument(fmt::format("cannot write the dump {}: check that the folder can be written to", path));
  }
  return Status::ok();
}

}  // namespace

void PassContext::remark(std::string_view pass, const ir::Node& node, std::string reason) const {
  if (!remarks) return;
  Remark made{std::string(pass), node.output() ? node.output()->name : node.op(), std::move(reason)};
  // A pass that stands in the pipeline twice would say everything twice.
  if (std::find(remarks->begin(), remarks->end(), made) == remarks->end()) remarks->push_back(std::move(made));
}

Result<std::vector<PassTime>> run_passes(ir::Graph& graph, std::span<const Pass> pipeline,
                                         const DriverOptions& options) {
  FW_RETURN_IF_ERROR(check_disabled(pipeline, options.disabled));
  const PassContext context{options.evaluator, options.remarks};
  std::vector<PassTime> times;
  int number = 0;
  if (!options.dump_dir.empty()) FW_RETURN_IF_ERROR(dump(graph, options.dump_dir, number, "input"));
  for (const Pass& pass : pipeline) {
    ++number;
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    Result<bool> changed = pass.run(graph, context);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    const std::string where = fmt::format("pass {}", pass.name);
    if (!changed.is_ok()) return changed.status().with_context(where);
    times.push_back({std::string(pass.name), elapsed.count(), changed.value()});
    const bool is_last = &pass == &pipeline.back();
    if (!changed.value() && !is_last) continue;
    if (Status valid = ir::verify(graph); !valid.is_ok()) return valid.with_context(fmt::format("after {}", where));
    if (changed.value() && !options.dump_dir.empty())
      FW_RETURN_IF_ERROR(dump(graph, options.dump_dir, number, pass.name));
  }
  return times;
}

}  // namespace flywheel::passes
