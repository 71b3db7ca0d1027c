// SPDX-License-Identifier: Apache-2.0
// Wires the compiler's stages: import, passes, lowering, tuning, assembly, file. The only file that knows them all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "compiler/ir/text.h"
#include "compiler/latency_curve.h"
#include "compiler/lower/assemble.h"
#include "compiler/lower/interpret.h"
#include "compiler/onnx/import.h"
#include "compiler/passes/pass.h"
#include "compiler/profile.h"
#include "compiler/tune/tuner.h"
#include "engine/engine_file.h"
#include "flywheel/compiler.h"

namespace flywheel {
namespace {

// What `inspect` shows. Nothing that differs between two builds of the same model with the same timings.
std::string build_record(const Machine& machine, int threads, const BuildOptions& options,
                         const onnx_import::ImportedModel& model, const std::vector<passes::PassTime>& pass_times,
                         const std::vector<passes::Remark>& remarks) {
  std::vector<std::string> pass_names, remark_texts;
  for (const passes::PassTime& pass : pass_times) {
    if (pass.changed) pass_names.push_back(json_quote(pass.name));
  }
  for (const passes::Remark& remark : remarks) {
    remark_texts.push_back(fmt::format("{{\"pass\": {}, \"node\": {}, \"reason\": {}}}", json_quote(remark.pass),
                                       json_quote(remark.node), json_quote(remark.reason)));
  }
  return fmt::format(
      "{{\"machine\": {}, \"isa\": {}, \"threads\": {}, \"tuned\": {}, \"producer\": {}, \"opset\": {}, "
      "\"onnx_nodes\": {}, "
      "\"passes\": [{}], \"remarks\": [{}]}}",
      json_quote(machine.cpu_name), json_quote(isa_name(machine.isa)), threads,
      options.tune && !options.reference_kernels, json_quote(model.producer), model.opset, model.node_count,
      fmt::join(pass_names, ", "), fmt::join(remark_texts, ", "));
}

class Builder {
 public:
  Builder(const BuildOptions& options) : options_(options) {}

  Result<BuildReport> run(const std::string& onnx_path, const std::string& engine_path) {
    FW_RETURN_IF_ERROR(prepare_machine());
    if (options_.timing_cache.empty()) return build(onnx_path, engine_path);
    FW_ASSIGN_OR_RETURN(cache_, tune::TimingCache::load(options_.timing_cache));
    // Also what a cancelled or failed build has measured is kept: the next one goes on from there.
    Result<BuildReport> report = build(onnx_path, engine_path);
    const Status saved = cache_.save(options_.timing_cache);
    if (report.is_ok() && !saved.is_ok()) return saved;
    return report;
  }

  Result<std::string> print(const std::string& onnx_path, bool after_passes) {
    FW_ASSIGN_OR_RETURN(
        model_, onnx_import::import_file(onnx_path, options_.copy_files ? FileAccess::kCopy : FileAccess::kMap));
    if (after_passes) FW_RETURN_IF_ERROR(run_passes());
    return ir::print(*model_.graph);
  }

 private:
  Result<BuildReport> build(const std::string& onnx_path, const std::string& engine_path) {
    const auto start = std::chrono::steady_clock::now();
    FW_RETURN_IF_ERROR(report_progress("import", 0, 1));
    FW_ASSIGN_OR_RETURN(
        model_, onnx_import::import_file(onnx_path, options_.copy_files ? FileAccess::kCopy : FileAccess::kMap));
    report_.onnx_nodes = model_.node_count;
    FW_RETURN_IF_ERROR(run_passes());
    FW_ASSIGN_OR_RETURN(auto profile, complete_profile(*model_.graph, options_.profile, options_.hints, report_.notes));
    FW_ASSIGN_OR_RETURN(lower::SymbolTable symbols, lower::bind_symbols(*model_.graph, profile));
    FW_RETURN_IF_ERROR(report_progress("lower", 0, 1));
    FW_ASSIGN_OR_RETURN(lower::LoweredGraph lowered, lower::lower(*model_.graph));
    FW_ASSIGN_OR_RETURN(std::vector<lower::TacticChoice> choices, choose_tactics(lowered, symbols));
    FW_RETURN_IF_ERROR(report_progress("pack", 0, 1));
    FW_ASSIGN_OR_RETURN(lower::Assembled assembled,
                        lower::assemble(lowered, choices, symbols, profile, threads_, machine_));
    assembled.plan.model_hash = model_.hash;
    assembled.plan.build_record = build_record(machine_, threads_, options_, model_, pass_times_, remarks_);
    if (measuring()) {
      FW_RETURN_IF_ERROR(report_progress("latency curve", 0, 1));
      FW_RETURN_IF_ERROR(measure_latency_curve(assembled, machine_, threads_, model_.hash, cache_));
    }
    FW_RETURN_IF_ERROR(report_progress("write", 0, 1));
    FW_RETURN_IF_ERROR(engine::write_engine(engine_path, assembled.plan, assembled.weights));
    report_.steps = static_cast<int>(lowered.steps.size());
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    summarize(assembled, profile);
    return std::move(report_);
  }

  bool measuring() const { return options_.tune && !options_.reference_kernels && !cross_; }

  Status report_progress(std::string_view phase, int done, int total) const {
    if (options_.progress && !options_.progress(phase, done, total))
      return {Code::kCancelled, "the build was cancelled"};
    return Status::ok();
  }

  Status prepare_machine() {
    if (options_.device != "cpu") {
      return unsupported(fmt::format("device '{}' is not supported: this version builds for cpu", options_.device));
    }
    FW_ASSIGN_OR_RETURN(machine_, detect_machine());
    if (!options_.target_isa.empty()) {
      FW_ASSIGN_OR_RETURN(Isa isa, parse_isa(options_.target_isa));
      // Kernels of a stronger ISA cannot be timed here; those of a weaker one can.
      cross_ = isa > machine_.hardware_isa;
      machine_.isa = isa;
    }
    if (options_.threads < 0 || options_.threads > 1024)
      return invalid_argument(fmt::format("{} threads: expected 0 to 1024", options_.threads));
    threads_ = options_.threads == 0 ? machine_.cores : options_.threads;
    return Status::ok();
  }

  Status run_passes() {
    FW_RETURN_IF_ERROR(report_progress("passes", 0, 1));
    passes::DriverOptions driver;
    driver.dump_dir = options_.dump_passes_dir;
    driver.disabled = options_.disabled_passes;
    driver.evaluator = lower::evaluate_node;
    driver.remarks = &remarks_;
    FW_ASSIGN_OR_RETURN(pass_times_, passes::run_passes(*model_.graph, passes::cpu_pipeline(), driver));
    for (const passes::PassTime& pass : pass_times_) report_.pass_ms.emplace_back(pass.name, pass.ms);
    return Status::ok();
  }

  Result<std::vector<lower::TacticChoice>> choose_tactics(const lower::LoweredGraph& lowered,
                                                          const lower::SymbolTable& symbols) {
    int64_t weights_bytes = 0;
    for (const lower::StepDraft& step : lowered.steps) {
      for (const ir::ConstTensor* constant : step.constants)
        weights_bytes += constant == nullptr ? 0 : static_cast<int64_t>(constant->size_bytes());
    }
    tune::TunerOptions tuner_options;
    tuner_options.measure = measuring();
    tuner_options.time_budget_s = options_.time_budget_s;
    tuner_options.cold_weights = weights_bytes > machine_.l3_bytes;
    FW_ASSIGN_OR_RETURN(std::unique_ptr<tune::Tuner> tuner,
                        tune::Tuner::create(machine_, threads_, tuner_options, &cache_));
    std::vector<lower::TacticChoice> choices;
    const int total = static_cast<int>(lowered.steps.size());
    for (const lower::StepDraft& step : lowered.steps) {
      FW_RETURN_IF_ERROR(report_progress("tune", static_cast<int>(choices.size()), total));
      FW_ASSIGN_OR_RETURN(kernels::Problem problem, lower::problem_for(step, symbols.opt));
      if (options_.reference_kernels) {
        choices.push_back({&kernels::tactics(step.family).back(), 0});
        continue;
      }
      std::vector<const void*> constants;
      for (const ir::ConstTensor* constant : step.constants)
        constants.push_back(constant == nullptr ? nullptr : constant->data.get());
      Result<tune::Choice> choice = tuner->choose(problem, constants);
      if (!choice.is_ok()) return choice.status().with_context(fmt::format("step '{}'", step.name));
      choices.push_back({choice->tactic, choice->ms});
      report_.tuned += choice->ms > 0 ? 1 : 0;
      report_.from_cache += choice->from_cache ? 1 : 0;
    }
    return choices;
  }

  void summarize(const lower::Assembled& assembled, const std::map<std::string, ProfileShape>& profile) {
    std::string& text = report_.summary;
    for (const std::string& note : report_.notes) text += note + "\n";
    for (const auto& [name, shape] : profile) text += fmt::format("profile  {}\n", profile_to_string(name, shape));
    text += fmt::format("graph    {} ONNX nodes became {} steps; {} timed, {} of those from the timing cache\n",
                        report_.onnx_nodes, report_.steps, report_.tuned, report_.from_cache);
    text += fmt::format(
        "memory   {:.1f} MB weights, {:.1f} MB arena and {:.1f} MB workspace a context at the profile's maximum\n",
        static_cast<double>(assembled.weights.size()) / 1e6, static_cast<double>(assembled.plan.arena_bytes) / 1e6,
        static_cast<double>(assembled.plan.workspace_bytes) / 1e6);
    text += fmt::format("target   {}, {} threads\n", isa_name(machine_.isa), threads_);
    text += fmt::format("built in {:.1f} s\n", report_.seconds);
  }

  const BuildOptions& options_;
  Machine machine_;
  int threads_ = 1;
  bool cross_ = false;
  tune::TimingCache cache_;
  onnx_import::ImportedModel model_;
  std::vector<passes::PassTime> pass_times_;
  std::vector<passes::Remark> remarks_;
  BuildReport report_;
};

}  // namespace

Result<BuildReport> build_engine(const std::string& onnx_path, const std::string& engine_path,
                                 const BuildOptions& options) {
  return Builder(options).run(onnx_path, engine_path);
}

Result<std::string> print_model(const std::string& onnx_path, const BuildOptions& options, bool after_passes) {
  return Builder(options).print(onnx_path, after_passes);
}

}  // namespace flywheel
