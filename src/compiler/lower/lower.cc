// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/lower.h"

#include <fmt/format.h>

#include "compiler/lower/assign_views.h"
#include "compiler/lower/emit.h"

namespace flywheel::lower {
namespace {

// Steps are named after the ONNX nodes that they compute, made unique.
void name_steps(LoweredGraph& lowered) {
  std::map<std::string, int> seen;
  for (StepDraft& step : lowered.steps) {
    std::string name = step.sources.empty() ? step.output_names.front() : step.sources.back();
    if (name.empty()) name = std::string(kernels::family_name(step.family));
    const int count = seen[name]++;
    step.name = count == 0 ? name : fmt::format("{}#{}", name, count + 1);
  }
}

}  // namespace

Result<LoweredGraph> lower(const ir::Graph& graph) {
  LoweredGraph out;
  out.graph = &graph;
  ViewAssignment assignment = assign_views(graph);
  Emitter emitter(assignment, out);
  std::string refused;
  int refused_count = 0;
  for (const auto& node : graph.nodes()) {
    if (assignment.elided[node.get()]) continue;
    const EmitFunction emit = find_emit(*node);
    const Status status = emit == nullptr ? unsupported("there is no kernel for this operator") : emit(emitter, *node);
    if (status.is_ok()) continue;
    if (status.code() != Code::kUnsupported) return status.with_context(node->describe());
    refused += fmt::format("\n  {}: {}", node->describe(), status.message());
    ++refused_count;
  }
  if (refused_count > 0) return unsupported(fmt::format("{} nodes cannot be compiled:{}", refused_count, refused));
  for (const auto& [index, destination] : assignment.output_copies) {
    const ir::Value* value = graph.outputs()[index];
    const View& from = emitter.view(value);
    StepDraft step;
    step.family = kernels::Family::kCopy;
    step.inputs = {from};
    step.outputs = {destination};
    step.input_types = step.output_types = {value->dtype};
    step.constants = {from.storage->constant};
    step.output_names = {graph.output_names()[index]};
    out.steps.push_back(std::move(step));
  }
  for (auto& storage : assignment.storages) out.storages.push_back(std::move(storage));
  name_steps(out);
  return out;
}

Result<kernels::Problem> problem_for(const StepDraft& step,
                                     const std::map<std::string, int64_t, std::less<>>& symbols) {
  kernels::Problem problem;
  problem.family = step.family;
  problem.floats = step.floats;
  problem.program = step.program;
  auto evaluate = [&](const std::vector<DimExpr>& exprs, std::vector<int64_t>& out) -> Status {
    for (const DimExpr& expr : exprs) {
      FW_ASSIGN_OR_RETURN(int64_t value, expr.evaluate(symbols));
      out.push_back(value);
    }
    return Status::ok();
  };
  auto describe = [&](const View& view, DType dtype) -> Result<TensorDesc> {
    TensorDesc desc;
    desc.dtype = dtype;
    FW_RETURN_IF_ERROR(evaluate(view.dims, desc.dims));
    FW_RETURN_IF_ERROR(evaluate(view.strides, desc.strides));
    if (!checked_element_count(desc.dims)) {
      return invalid_argument(fmt::format("step '{}' would work on shape {}: the profile does not fit the model",
                                          step.name, dims_to_string(desc.dims)));
    }
    return desc;
  };
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    FW_ASSIGN_OR_RETURN(TensorDesc desc, describe(step.inputs[i], step.input_types[i]));
    problem.inputs.push_back(std::move(desc));
    problem.constant.push_back(step.constants[i] != nullptr);
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    FW_ASSIGN_OR_RETURN(TensorDesc desc, describe(step.outputs[i], step.output_types[i]));
    problem.outputs.push_back(std::move(desc));
  }
  FW_RETURN_IF_ERROR(evaluate(step.ints, problem.ints));
  return problem;
}

}  // namespace flywheel::lower
