// SPDX-License-Identifier: Apache-2.0
// `flywheel build`: an ONNX model becomes an engine file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/log.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "flywheel/compiler.h"

namespace flywheel::cli {
namespace {

struct BuildFlags {
  std::string model, engine;
  std::vector<std::string> profiles;
  bool no_tune = false, verbose = false;
  BuildOptions options;
};

Status build(BuildFlags& flags) {
  if (flags.engine.empty()) flags.engine = std::filesystem::path(flags.model).replace_extension(".engine").string();
  if (flags.verbose) set_log_level(LogLevel::kVerbose);
  for (const std::string& text : flags.profiles) {
    FW_ASSIGN_OR_RETURN(auto profile, parse_profile(text));
    if (!flags.options.profile.insert(profile).second) {
      return invalid_argument(fmt::format("--profile names input '{}' twice", profile.first));
    }
  }
  flags.options.tune = !flags.no_tune;
  Result<BuildReport> report = internal_error("the build did not run");
  {
    Progress progress;
    flags.options.progress = [&](std::string_view phase, int done, int total) {
      return progress.report(phase, done, total);
    };
    report = build_engine(flags.model, flags.engine, flags.options);
  }
  if (!report.is_ok()) return report.status().with_context(fmt::format("building '{}'", flags.model));
  if (flags.verbose) {
    for (const auto& [pass, ms] : report->pass_ms) fmt::print("pass     {:9.2f} ms  {}\n", ms, pass);
  }
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(flags.engine, ignored);
  fmt::print("{}engine   {} ({:.1f} MB)\n", report->summary, flags.engine, static_cast<double>(bytes) / 1e6);
  return Status::ok();
}

}  // namespace

void add_build(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<BuildFlags>();
  CLI::App* verb = app.add_subcommand("build", "Compile an ONNX model into an engine file");
  verb->add_option("model", flags->model, "The model")->required()->type_name("MODEL.onnx");
  verb->add_option("-o,--output", flags->engine, "The engine file; default: beside the model")
      ->type_name("MODEL.engine");
  verb->add_option(
          "--profile", flags->profiles,
          "Shapes that an input may have: min, opt (tuned for) and max, or one for all. Repeat for each input with "
          "dynamic dims; inputs left out get defaults, which are printed")
      ->type_name("NAME:1x3x224x224,8x3x224x224,32x3x224x224")
      ->allow_extra_args(false);
  verb->add_option("--device", flags->options.device, "What the engine runs on; this version knows cpu")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--isa", flags->options.target_isa,
                   "Instruction set to build for: avx512, avx2 or portable; default: this machine's best")
      ->type_name("ISA");
  verb->add_option("--threads", flags->options.threads, "Threads that kernels are timed with; 0: all cores")
      ->check(CLI::Range(0, 1024));
  verb->add_option("--timing-cache", flags->options.timing_cache,
                   "File of kernel times: read if it exists, then rewritten")
      ->type_name("FILE");
  verb->add_option("--time-budget", flags->options.time_budget_s,
                   "Seconds to spend on timing kernels, the rest is chosen by rank; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--no-tune", flags->no_tune, "Time nothing: kernels are chosen by a fixed rank");
  verb->add_option("--dump-passes", flags->options.dump_passes_dir,
                   "Folder for the graph's text after each pass that changed it")
      ->type_name("DIR");
  verb->add_option("--disable-pass", flags->options.disabled_passes, "Leave out this pass; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  verb->add_flag("--verbose", flags->verbose, "Print each pass's time, and log more");
  verb->callback([flags, &chosen] { chosen = [flags] { return build(*flags); }; });
}

}  // namespace flywheel::cli
