// SPDX-License-Identifier: Apache-2.0
// `flywheel verify`: an engine against the reference kernels, step by step, and against recorded outputs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/bound_arrays.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "flywheel/compiler.h"
#include "runtime/verify.h"

namespace flywheel::cli {
namespace {

struct VerifyFlags {
  std::string engine, model, inputs, expected;
  kernels::Tolerance tolerance = runtime::kModelTolerance;
  ContextOptions context;
};

// A folder that is gone when this is.
class TemporaryFolder {
 public:
  static Result<std::unique_ptr<TemporaryFolder>> create() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "flywheel-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr)
      return unavailable(fmt::format("cannot make a temporary folder such as '{}'", path));
    auto folder = std::make_unique<TemporaryFolder>();
    folder->path_ = path;
    return folder;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string describe(const runtime::Difference& difference) {
  if (difference.agrees()) return fmt::format("error {:.2e}", difference.relative());
  return fmt::format("{} of {} elements are outside the tolerance; at {} it is {:.7g}, expected {:.7g}",
                     difference.outside, difference.elements, difference.worst, difference.got, difference.want);
}

// False when something differs.
Result<bool> verify_steps(const VerifyFlags& flags, const Engine& engine, ExecutionContext& context,
                          const BoundArrays& arrays) {
  FW_ASSIGN_OR_RETURN(std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::create());
  const std::string path = folder->path() + "/reference.engine";
  {
    BuildOptions options;
    options.reference_kernels = true;
    options.tune = false;
    for (const TensorInfo& input : engine.inputs()) options.profile[input.name] = {input.min, input.opt, input.max};
    Progress progress;
    options.progress = [&](std::string_view phase, int done, int total) { return progress.report(phase, done, total); };
    Result<BuildReport> report = build_engine(flags.model, path, options);
    if (!report.is_ok()) return report.status().with_context("building the reference engine");
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Engine> reference, Engine::load(path));
  if (reference->model_hash() != engine.model_hash()) {
    return invalid_argument(
        fmt::format("'{}' was not built from '{}': the hashes of the models are {:016x} and {:016x}", flags.engine,
                    flags.model, engine.model_hash(), reference->model_hash()));
  }
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> reference_context, reference->create_context(flags.context));
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    FW_RETURN_IF_ERROR(reference_context->set_shape(static_cast<int>(i), arrays.inputs[i].dims));
  }
  fmt::print("steps    running each with the reference kernels, which are slow\n");
  std::fflush(stdout);
  FW_ASSIGN_OR_RETURN(std::vector<runtime::StepDifference> found,
                      runtime::compare_steps(context, *reference_context, arrays.input_pointers, flags.tolerance));
  const runtime::StepDifference* first = nullptr;
  size_t differing = 0;
  fmt::print("steps    error in parts of the value's largest element; step, value\n");
  for (const runtime::StepDifference& value : found) {
    const StepInfo& step = engine.steps()[static_cast<size_t>(value.step)];
    const std::string verdict = value.mismatch.empty() ? fmt::format("{:.2e}", value.difference.relative()) : "none";
    fmt::print("  {:4} {:>9}  {} ({}) {} {}\n", value.agrees() ? "ok" : "DIFF", verdict, step.name, step.tactic,
               value.value, value.shape);
    if (value.agrees()) continue;
    ++differing;
    if (first == nullptr) first = &value;
  }
  if (first == nullptr) {
    fmt::print("steps    all {} values agree with the reference kernels\n", found.size());
    return true;
  }
  const StepInfo& step = engine.steps()[static_cast<size_t>(first->step)];
  fmt::print("steps    {} of {} values differ; the first is '{}' of step '{}' ({}), which computes {}: {}\n", differing,
             found.size(), first->value, step.name, step.tactic, fmt::join(step.sources, ", "),
             first->mismatch.empty() ? describe(first->difference) : first->mismatch);
  return false;
}

Result<bool> verify_outputs(const VerifyFlags& flags, const Engine& engine, ExecutionContext& context,
                            BoundArrays& arrays) {
  FW_ASSIGN_OR_RETURN(ArrayMap expected, read_npz(flags.expected));
  for (const auto& [name, array] : expected) {
    if (!engine.find_output(name))
      return invalid_argument(fmt::format("'{}' in '{}' is no output of the engine", name, flags.expected));
  }
  FW_RETURN_IF_ERROR(context.run(arrays.input_pointers, arrays.output_pointers));
  bool agrees = true;
  for (size_t i = 0; i < arrays.outputs.size(); ++i) {
    const std::string& name = engine.outputs()[i].name;
    const Array& got = arrays.outputs[i];
    const auto want = expected.find(name);
    std::string verdict;
    bool same = false;
    if (want == expected.end()) {
      verdict = fmt::format("is not in '{}'", flags.expected);
    } else if (want->second.to_string() != got.to_string()) {
      verdict = fmt::format("expected {}", want->second.to_string());
    } else {
      const runtime::Difference difference =
          runtime::compare_arrays(got.dtype, got.data.bytes(), want->second.data.bytes(), flags.tolerance);
      same = difference.agrees();
      verdict = describe(difference);
    }
    fmt::print("output   {:4} {} {}: {}\n", same ? "ok" : "DIFF", name, got.to_string(), verdict);
    agrees = agrees && same;
  }
  return agrees;
}

Status verify(const VerifyFlags& flags) {
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::load(flags.engine));
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context, engine->create_context(flags.context));
  FW_ASSIGN_OR_RETURN(ArrayMap given, flags.inputs.empty() ? make_inputs(*engine, {}) : read_npz(flags.inputs));
  FW_ASSIGN_OR_RETURN(BoundArrays arrays, bind_arrays(*context, std::move(given)));
  fmt::print("inputs   {}{}\n", arrays.describe_inputs(*engine), flags.inputs.empty() ? " (made up)" : "");
  bool agrees = true;
  if (!flags.model.empty()) {
    FW_ASSIGN_OR_RETURN(const bool same, verify_steps(flags, *engine, *context, arrays));
    agrees = agrees && same;
  }
  if (!flags.expected.empty()) {
    FW_ASSIGN_OR_RETURN(const bool same, verify_outputs(flags, *engine, *context, arrays));
    agrees = agrees && same;
  }
  if (!agrees) return internal_error(fmt::format("'{}' does not compute what was expected", flags.engine));
  return Status::ok();
}

}  // namespace

void add_verify(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* verb =
      app.add_subcommand("verify", "Compare an engine with the reference kernels and with recorded outputs");
  verb->add_option("engine", flags->engine, "The engine file")->required()->type_name("ENGINE");
  verb->add_option("--model", flags->model,
                   "The model that it was built from: each step is compared with the reference kernels")
      ->type_name("MODEL.onnx");
  verb->add_option("--inputs", flags->inputs,
                   "Inputs; default: normal random numbers, integers 1, at the profile's opt shapes")
      ->type_name("X.npz");
  verb->add_option("--expected", flags->expected, "Outputs recorded for these inputs")
      ->type_name("Y.npz")
      ->needs("--inputs");
  verb->add_option("--tolerance", flags->tolerance.of_largest,
                   "Largest error of a floating-point element, in parts of its tensor's largest element")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--threads", flags->context.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
  verb->callback([flags, &chosen] {
    if (flags->model.empty() && flags->expected.empty()) {
      throw CLI::RequiredError("verify: one of --model and --expected");
    }
    chosen = [flags] { return verify(*flags); };
  });
}

}  // namespace flywheel::cli
