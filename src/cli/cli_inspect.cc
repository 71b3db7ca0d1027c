// SPDX-License-Identifier: Apache-2.0
// `flywheel inspect`: what an engine file holds. Also shows engines that this machine cannot run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <memory>

#include "base/json.h"
#include "cli/verb.h"
#include "engine/engine_file.h"
#include "flywheel/engine.h"

namespace flywheel::cli {
namespace {

struct InspectFlags {
  std::string engine;
  bool json = false, check = false;
};

std::string quoted_list(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_quote(text));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

// Dims as people read them: numbers where they are fixed, else the symbol or expression.
std::vector<std::string> dim_texts(const engine::Plan& plan, const engine::IoTensor& tensor) {
  std::vector<std::string> texts;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    const engine::Expr& expr = plan.exprs[static_cast<size_t>(tensor.dims[d])];
    const bool fixed = expr.size() == 1 && expr[0].op == DimExpr::Op::kConst;
    texts.push_back(fixed ? fmt::format("{}", expr[0].value) : d < tensor.dim_texts.size() ? tensor.dim_texts[d] : "?");
  }
  return texts;
}

std::string io_json(const engine::Plan& plan, const std::vector<engine::IoTensor>& tensors, bool profile) {
  std::vector<std::string> texts;
  for (const engine::IoTensor& tensor : tensors) {
    std::string text = fmt::format("{{\"name\": {}, \"dtype\": {}, \"dims\": {}", json_quote(tensor.name),
                                   json_quote(dtype_name(tensor.dtype)), quoted_list(dim_texts(plan, tensor)));
    if (profile) {
      text += fmt::format(", \"min\": [{}], \"opt\": [{}], \"max\": [{}]", fmt::join(tensor.min, ", "),
                          fmt::join(tensor.opt, ", "), fmt::join(tensor.max, ", "));
    }
    texts.push_back(text + "}");
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

// The record is JSON that the compiler wrote; an engine file from elsewhere may hold anything.
bool parse_record(simdjson::dom::parser& parser, const std::string& text, simdjson::dom::element& record) {
  return parser.parse(text).get(record) == simdjson::SUCCESS && record.is_object();
}

void print_json(const engine::EngineFile& file) {
  const engine::Plan& plan = file.plan;
  std::vector<std::string> steps, curve;
  for (const engine::Step& step : plan.steps) {
    steps.push_back(
        fmt::format("\n    {{\"name\": {}, \"family\": {}, \"tactic\": {}, \"onnx_nodes\": {}, \"outputs\": {}, "
                    "\"problem\": {}, \"packed_bytes\": {}, \"tuned_ms\": {}}}",
                    json_quote(step.name), json_quote(kernels::family_name(step.family)), json_quote(step.tactic),
                    quoted_list(step.sources), quoted_list(step.output_names), json_quote(step.problem),
                    step.packed_bytes, step.tuned_ms));
  }
  for (const auto& [batch, ms] : plan.latency_curve) curve.push_back(fmt::format("[{}, {}]", batch, ms));
  simdjson::dom::parser parser;
  simdjson::dom::element record;
  const std::string build = parse_record(parser, plan.build_record, record) ? simdjson::minify(record) : "null";
  fmt::print(
      "{{\n  \"name\": {},\n  \"format_version\": {},\n  \"device\": \"cpu\",\n  \"isa\": {},\n  \"model_hash\": "
      "\"{:016x}\",\n"
      "  \"file_bytes\": {},\n  \"weights_bytes\": {},\n  \"arena_bytes\": {},\n  \"workspace_bytes\": {},\n"
      "  \"inputs\": {},\n  \"outputs\": {},\n  \"latency_curve_ms\": [{}],\n  \"build\": {},\n  \"steps\": [{}]\n}}\n",
      json_quote(plan.name), file.header.format_version, json_quote(isa_name(file.header.isa)), plan.model_hash,
      file.header.file_bytes, file.weights.size(), plan.arena_bytes, plan.workspace_bytes,
      io_json(plan, plan.inputs, true), io_json(plan, plan.outputs, false), fmt::join(curve, ", "), build,
      fmt::join(steps, ","));
}

void print_record(const std::string& text) {
  simdjson::dom::parser parser;
  simdjson::dom::element record;
  if (!parse_record(parser, text, record)) return;
  for (auto [key, value] : simdjson::dom::object(record)) {
    if (!value.is_array()) fmt::print("built    {}: {}\n", key, simdjson::minify(value));
  }
  simdjson::dom::array remarks;
  if (record["remarks"].get(remarks) != simdjson::SUCCESS || remarks.size() == 0) return;
  fmt::print("\nremarks  what was not fused or changed, and why\n");
  for (simdjson::dom::element remark : remarks) {
    std::string_view pass, node, reason;
    if (remark["pass"].get(pass) != simdjson::SUCCESS || remark["node"].get(node) != simdjson::SUCCESS ||
        remark["reason"].get(reason) != simdjson::SUCCESS) {
      continue;
    }
    fmt::print("  {} at {}: {}\n", pass, node, reason);
  }
}

void print_text(const InspectFlags& flags, const engine::EngineFile& file) {
  const engine::Plan& plan = file.plan;
  fmt::print("engine   {} in {}: {:.1f} MB, format {}, for cpu with {}\n", plan.name, flags.engine,
             static_cast<double>(file.header.file_bytes) / 1e6, file.header.format_version, isa_name(file.header.isa));
  fmt::print("model    hash {:016x}\n", plan.model_hash);
  for (const engine::IoTensor& input : plan.inputs) {
    fmt::print("input    {} {} [{}], profile {} to {}, tuned for {}\n", input.name, dtype_name(input.dtype),
               fmt::join(dim_texts(plan, input), ", "), dims_to_string(input.min), dims_to_string(input.max),
               dims_to_string(input.opt));
  }
  for (const engine::IoTensor& output : plan.outputs) {
    fmt::print("output   {} {} [{}]\n", output.name, dtype_name(output.dtype),
               fmt::join(dim_texts(plan, output), ", "));
  }
  fmt::print("memory   {:.1f} MB weights, mapped and shared; each context {:.1f} MB arena and {:.1f} MB workspace\n",
             static_cast<double>(file.weights.size()) / 1e6, static_cast<double>(plan.arena_bytes) / 1e6,
             static_cast<double>(plan.workspace_bytes) / 1e6);
  for (const auto& [batch, ms] : plan.latency_curve)
    fmt::print("latency  {:.3f} ms for batch {}, measured at the build\n", ms, batch);
  fmt::print("\nsteps    {}: time at the build, step: tactic on problem <- ONNX nodes\n", plan.steps.size());
  for (const engine::Step& step : plan.steps) {
    const std::string ms = step.tuned_ms > 0 ? fmt::format("{:.4f} ms", step.tuned_ms) : "not timed";
    fmt::print(
        "  {:>11}  {}: {} on {} <- {}\n", ms, step.name, step.tactic, step.problem,
        step.sources.empty() ? "no ONNX node: made by the compiler" : fmt::format("{}", fmt::join(step.sources, ", ")));
  }
  fmt::print("\n");
  print_record(plan.build_record);
}

Status inspect(const InspectFlags& flags) {
  if (flags.check) {
    FW_RETURN_IF_ERROR(Engine::check(flags.engine));
    fmt::print("'{}' would run here\n", flags.engine);
    return Status::ok();
  }
  // A machine that has everything: looking at an engine needs none of what running it does.
  Machine any;
  any.isa = any.hardware_isa = Isa::kAvx512;
  FW_ASSIGN_OR_RETURN(const engine::EngineFile file, engine::read_engine(flags.engine, any));
  if (flags.json) {
    print_json(file);
  } else {
    print_text(flags, file);
  }
  return Status::ok();
}

}  // namespace

void add_inspect(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* verb = app.add_subcommand("inspect", "Show what an engine file holds");
  verb->add_option("engine", flags->engine, "The engine file")->required()->type_name("ENGINE");
  verb->add_flag("--json", flags->json, "As JSON");
  verb->add_flag("--check", flags->check,
                 "Only say whether it would run on this machine; exit code 1 and the reason if not");
  verb->callback([flags, &chosen] { chosen = [flags] { return inspect(*flags); }; });
}

}  // namespace flywheel::cli
