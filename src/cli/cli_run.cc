// SPDX-License-Identifier: Apache-2.0
// `flywheel run`: an engine on arrays of an .npz file.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <set>

#include "cli/bound_arrays.h"
#include "cli/verb.h"

namespace flywheel::cli {
namespace {

struct RunFlags {
  std::string engine, inputs, outputs, steps;
  std::vector<std::string> input_files;
  ContextOptions context;
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Runs once more and keeps what each step gives.
Status write_steps(ExecutionContext& context, BoundArrays& arrays, const std::string& path) {
  std::vector<std::pair<NamedArray, std::vector<std::byte>>> values;
  std::set<std::string> seen;
  context.set_observer([&](int, int, const TensorInfo& info, std::span<const std::byte> data) {
    if (!seen.insert(info.name).second) return;
    values.push_back({{info.name, info.dtype, info.dims, {}}, std::vector<std::byte>(data.begin(), data.end())});
  });
  const Status status = context.run(arrays.input_pointers, arrays.output_pointers);
  context.set_observer(nullptr);
  FW_RETURN_IF_ERROR(status);
  std::vector<NamedArray> named;
  for (auto& [array, data] : values) {
    array.data = data;
    named.push_back(array);
  }
  FW_RETURN_IF_ERROR(write_npz(path, named));
  fmt::print("steps    {} values in {}\n", named.size(), path);
  return Status::ok();
}

Status run(const RunFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::load(flags.engine));
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context, engine->create_context(flags.context));
  const double load_ms = ms_since(start);
  FW_ASSIGN_OR_RETURN(ArrayMap read, read_inputs(flags.inputs, flags.input_files));
  FW_ASSIGN_OR_RETURN(BoundArrays arrays, bind_arrays(*context, std::move(read)));
  const auto before = std::chrono::steady_clock::now();
  FW_RETURN_IF_ERROR(context->run(arrays.input_pointers, arrays.output_pointers));
  const double run_ms = ms_since(before);
  if (!flags.outputs.empty()) {
    std::vector<NamedArray> named;
    for (size_t i = 0; i < arrays.outputs.size(); ++i) {
      const Array& array = arrays.outputs[i];
      named.push_back({engine->outputs()[i].name, array.dtype, array.dims, array.data.bytes()});
    }
    FW_RETURN_IF_ERROR(write_npz(flags.outputs, named));
  }
  fmt::print("inputs   {}\n", arrays.describe_inputs(*engine));
  fmt::print("outputs  {}\n", arrays.describe_outputs(*engine));
  fmt::print("time     {:.3f} ms on {} threads (the engine was loaded in {:.2f} ms)\n", run_ms, context->threads(),
             load_ms);
  return flags.steps.empty() ? Status::ok() : write_steps(*context, arrays, flags.steps);
}

}  // namespace

void add_run(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* verb = app.add_subcommand("run", "Run an engine once on given arrays");
  verb->add_option("engine", flags->engine, "The engine file")->required()->type_name("ENGINE");
  verb->add_option("--inputs", flags->inputs, "Arrays named after the engine's inputs; their shapes are used")
      ->type_name("X.npz");
  verb->add_option("--input", flags->input_files, "One input from a .npy file; may be repeated")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  verb->add_option("--outputs", flags->outputs, "Where the outputs are written, named after the engine's")
      ->type_name("Y.npz");
  verb->add_option("--steps", flags->steps,
                   "Where the outputs of all steps are written, named after the model's values")
      ->type_name("STEPS.npz");
  verb->add_option("--threads", flags->context.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
  verb->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace flywheel::cli
