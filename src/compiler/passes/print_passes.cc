// SPDX-License-Identifier: Apache-2.0
// A tool for people who work on passes: imports a model, runs the pipeline, prints the graph, what each pass took and
// what was remarked.
//
//   print_passes MODEL.onnx [--imported] [--summary] [--disable PASS]... [--dump DIR]
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>

#include "compiler/ir/text.h"
#include "compiler/onnx/import.h"
#include "compiler/passes/pass.h"

namespace {

using namespace flywheel;

void print_summary(const ir::Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& node : graph.nodes()) ++counts[node->op()];
  for (const auto& [op, count] : counts) fmt::print("{:6} {}\n", count, op);
}

int fail(const Status& status) {
  fmt::print(stderr, "{}\n", status.to_string());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  passes::DriverOptions options;
  bool imported_only = false, summary_only = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--imported") {
      imported_only = true;
    } else if (argument == "--summary") {
      summary_only = true;
    } else if (argument == "--disable" && i + 1 < argc) {
      options.disabled.emplace_back(argv[++i]);
    } else if (argument == "--dump" && i + 1 < argc) {
      options.dump_dir = argv[++i];
    } else {
      path = argument;
    }
  }
  if (path.empty()) {
    fmt::print(stderr, "usage: print_passes MODEL.onnx [--imported] [--summary] [--disable PASS]... [--dump DIR]\n");
    return 2;
  }
  Result<onnx_import::ImportedModel> model = onnx_import::import_file(path);
  if (!model.is_ok()) return fail(model.status());
  ir::Graph& graph = *model->graph;
  std::vector<passes::Remark> remarks;
  options.remarks = &remarks;
  if (!imported_only) {
    Result<std::vector<passes::PassTime>> times = passes::run_passes(graph, passes::cpu_pipeline(), options);
    if (!times.is_ok()) return fail(times.status());
    for (const passes::PassTime& time : times.value()) {
      fmt::print("{:8.2f} ms {}{}\n", time.ms, time.name, time.changed ? "" : " (nothing)");
    }
    for (const passes::Remark& remark : remarks) fmt::print("{}: {}\n", remark.pass, remark.reason);
  }
  print_summary(graph);
  if (!summary_only) fmt::print("{}", ir::print(graph));
  return 0;
}
