// SPDX-License-Identifier: Apache-2.0
// `flywheel bench`: latency, throughput, load time and memory of an engine, and where its time goes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <chrono>
#include <map>
#include <memory>
#include <numeric>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/bound_arrays.h"
#include "cli/verb.h"
#include "runtime/benchmark.h"

namespace flywheel::cli {
namespace {

struct BenchFlags {
  std::string engine, inputs, json;
  std::vector<std::string> shapes;
  bool profile = false;
  ContextOptions context;
  runtime::BenchmarkOptions benchmark;
};

struct Measured {
  double load_ms = 0, context_ms = 0;
  runtime::BenchmarkResult result;
  int64_t samples = 1;  // in one run
  std::vector<double> step_ms;
  uint64_t peak_rss_bytes = 0;

  double throughput_per_s() const { return result.runs_per_s() * static_cast<double>(samples); }
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string to_json(const BenchFlags& flags, const Engine& engine, const ExecutionContext& context,
                    const BoundArrays& arrays, const Measured& measured) {
  const runtime::LatencySummary& ms = measured.result.latency_ms;
  std::vector<std::string> shapes, steps;
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    shapes.push_back(
        fmt::format("{}: [{}]", json_quote(engine.inputs()[i].name), fmt::join(arrays.inputs[i].dims, ", ")));
  }
  for (size_t i = 0; i < measured.step_ms.size(); ++i) {
    const StepInfo& step = engine.steps()[i];
    std::vector<std::string> sources;
    for (const std::string& source : step.sources) sources.push_back(json_quote(source));
    steps.push_back(
        fmt::format("\n    {{\"name\": {}, \"ms\": {:.6f}, \"family\": {}, \"tactic\": {}, \"onnx_nodes\": [{}]}}",
                    json_quote(step.name), measured.step_ms[i], json_quote(step.family), json_quote(step.tactic),
                    fmt::join(sources, ", ")));
  }
  return fmt::format(
      "{{\n"
      "  \"engine\": {},\n  \"threads\": {},\n  \"shapes\": {{{}}},\n  \"runs\": {},\n  \"seconds\": {:.6f},\n"
      "  \"latency_ms\": {{\"min\": {:.6f}, \"mean\": {:.6f}, \"p50\": {:.6f}, \"p90\": {:.6f}, \"p95\": {:.6f}, "
      "\"p99\": "
      "{:.6f}, \"max\": {:.6f}}},\n"
      "  \"throughput_per_s\": {:.6f},\n  \"load_ms\": {:.6f},\n  \"context_ms\": {:.6f},\n  \"first_ms\": {:.6f},\n"
      "  \"peak_rss_bytes\": {},\n  \"steps\": [{}]\n}}\n",
      json_quote(flags.engine), context.threads(), fmt::join(shapes, ", "), measured.result.runs,
      measured.result.seconds, ms.min, ms.mean, ms.p50, ms.p90, ms.p95, ms.p99, ms.max, measured.throughput_per_s(),
      measured.load_ms, measured.context_ms, measured.result.first_ms, measured.peak_rss_bytes, fmt::join(steps, ","));
}

void print_steps(const Engine& engine, const std::vector<double>& step_ms) {
  const double total = std::accumulate(step_ms.begin(), step_ms.end(), 0.0);
  auto percent = [&](double ms) { return total > 0 ? 100 * ms / total : 0; };
  std::map<std::string, double> by_family;
  fmt::print("\n      ms      %  step: tactic <- ONNX nodes\n");
  for (size_t i = 0; i < step_ms.size(); ++i) {
    const StepInfo& step = engine.steps()[i];
    by_family[step.family] += step_ms[i];
    fmt::print("{:8.4f} {:6.2f}  {}: {} <- {}\n", step_ms[i], percent(step_ms[i]), step.name, step.tactic,
               fmt::join(step.sources, ", "));
  }
  fmt::print("{:8.4f}         all {} steps; medians, so that they need not add up to a run\n\n", total, step_ms.size());
  for (const auto& [family, ms] : by_family) fmt::print("{:8.4f} {:6.2f}  {}\n", ms, percent(ms), family);
}

Status bench(const BenchFlags& flags) {
  Measured measured;
  auto start = std::chrono::steady_clock::now();
  FW_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, Engine::load(flags.engine));
  measured.load_ms = ms_since(start);
  start = std::chrono::steady_clock::now();
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context, engine->create_context(flags.context));
  measured.context_ms = ms_since(start);
  if (!flags.inputs.empty() && !flags.shapes.empty()) {
    return invalid_argument("--inputs and --shapes exclude each other: arrays bring their shapes");
  }
  FW_ASSIGN_OR_RETURN(ArrayMap given,
                      flags.inputs.empty() ? make_inputs(*engine, flags.shapes) : read_npz(flags.inputs));
  FW_ASSIGN_OR_RETURN(BoundArrays arrays, bind_arrays(*context, std::move(given)));
  if (!arrays.inputs.empty() && !arrays.inputs[0].dims.empty()) measured.samples = arrays.inputs[0].dims[0];

  Result<runtime::BenchmarkResult> result =
      runtime::benchmark(*context, arrays.input_pointers, arrays.output_pointers, flags.benchmark);
  if (!result.is_ok()) {
    return flags.inputs.empty() ? result.status().with_context("on made-up inputs (give real ones with --inputs)")
                                : result.status();
  }
  measured.result = *result;
  measured.peak_rss_bytes = peak_rss_bytes();
  if (flags.profile) {
    FW_ASSIGN_OR_RETURN(measured.step_ms, runtime::measure_steps(*context, arrays.input_pointers,
                                                                 arrays.output_pointers, flags.benchmark));
  }

  const runtime::LatencySummary& ms = measured.result.latency_ms;
  fmt::print("engine      {}: {} steps, {} threads\n", flags.engine, engine->steps().size(), context->threads());
  fmt::print("inputs      {}\n", arrays.describe_inputs(*engine));
  fmt::print("outputs     {}\n", arrays.describe_outputs(*engine));
  fmt::print("latency     min {:.3f}  mean {:.3f}  p50 {:.3f}  p90 {:.3f}  p95 {:.3f}  p99 {:.3f}  max {:.3f} ms\n",
             ms.min, ms.mean, ms.p50, ms.p90, ms.p95, ms.p99, ms.max);
  fmt::print("throughput  {:.2f} samples/s ({} runs of {} in {:.2f} s)\n", measured.throughput_per_s(),
             measured.result.runs, measured.samples, measured.result.seconds);
  fmt::print("start       load {:.2f} ms, context {:.2f} ms, first run {:.2f} ms\n", measured.load_ms,
             measured.context_ms, measured.result.first_ms);
  fmt::print("memory      {:.1f} MB peak resident; weights {:.1f} MB, arena {:.1f} MB, workspace {:.1f} MB\n",
             static_cast<double>(measured.peak_rss_bytes) / 1e6,
             static_cast<double>(engine->memory().weights_bytes) / 1e6,
             static_cast<double>(engine->memory().arena_bytes) / 1e6,
             static_cast<double>(engine->memory().workspace_bytes) / 1e6);
  if (flags.profile) print_steps(*engine, measured.step_ms);
  if (flags.json.empty()) return Status::ok();
  const std::string json = to_json(flags, *engine, *context, arrays, measured);
  return write_file_atomically(flags.json, std::as_bytes(std::span(json)));
}

}  // namespace

void add_bench(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb = app.add_subcommand("bench", "Measure an engine: latency, throughput, load time, memory");
  verb->add_option("engine", flags->engine, "The engine file")->required()->type_name("ENGINE");
  verb->add_option("--shapes", flags->shapes,
                   "Shape of an input; may be repeated. Inputs left out follow where they share a dim's symbol, else "
                   "have the profile's opt shape")
      ->type_name("NAME:8x3x224x224")
      ->allow_extra_args(false);
  verb->add_option("--inputs", flags->inputs,
                   "Real inputs instead of made-up ones (normal random numbers; integers are 1)")
      ->type_name("X.npz");
  verb->add_option("--threads", flags->context.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
  verb->add_option("--duration", flags->benchmark.duration_s, "Seconds to measure for")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  verb->add_option("--warmup", flags->benchmark.warmup_ms, "Milliseconds to run before")
      ->check(CLI::Range(0.0, 3600000.0))
      ->capture_default_str();
  verb->add_option("--iterations", flags->benchmark.min_runs, "Runs to measure at least")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--json", flags->json,
                   "Write the figures there too; times in ms, throughput in samples (rows of the first input)")
      ->type_name("FILE");
  verb->add_flag("--profile", flags->profile, "Also time each step, with the ONNX nodes that it computes");
  verb->callback([flags, &chosen] { chosen = [flags] { return bench(*flags); }; });
}

}  // namespace flywheel::cli
