// SPDX-License-Identifier: Apache-2.0
// fold_constants: nodes all of whose operands are constant become constants. The pass's own evaluator does elementwise
// operators and moves; for others the driver's options can bring one that runs kernels. What would blow up a small
// constant (Expand, ConstantOfShape) by more than kMaxGrowth stays a node.
#include <algorithm>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::ConstTensor;
using ir::Graph;
using ir::Node;
using ir::Value;

constexpr double kMaxGrowth = 64 << 10;  // bytes that a fold may add to the engine

bool all_constant(const Node& node) {
  return std::all_of(node.inputs().begin(), node.inputs().end(),
                     [](const Value* input) { return !input || input->is_constant(); });
}

bool is_candidate(const Node& node) {
  const ops::Op* op = ops::find_op(node.op());
  if (!op || !op->deterministic || !all_constant(node)) return false;
  if (node.inputs().empty() && node.op() != "ConstantOfShape") return false;
  return std::all_of(node.outputs().begin(), node.outputs().end(),
                     [](const Value* output) { return constant_dims(output->shape).has_value(); });
}

double bytes_of(const Value& value) {
  return estimated_elements(value.shape) * static_cast<double>(dtype_size(value.dtype));
}

bool grows_too_much(const Node& node) {
  double before = 0, after = 0;
  for (const Value* input : node.inputs()) {
    if (input) before += bytes_of(*input);
  }
  for (const Value* output : node.outputs()) after += bytes_of(*output);
  return after > before + kMaxGrowth;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  bool changed = false;
  for (Node* node : node_list(graph)) {
    if (!is_candidate(*node) || grows_too_much(*node)) continue;
    if (std::any_of(node->outputs().begin(), node->outputs().end(),
                    [](const Value* v) { return v->is_graph_output(); })) {
      continue;  // outputs are computed, so that they have a place of their own
    }
    Result<std::vector<ConstTensor>> results = evaluate_simple(*node);
    if (!results.is_ok() && results.status().code() == Code::kUnsupported && context.evaluator) {
      results = context.evaluator(*node);
    }
    if (!results.is_ok()) {
      if (results.status().code() == Code::kUnsupported) continue;
      return results.status();
    }
    if (results.value().size() != node->outputs().size()) {
      return internal_error("the evaluator gave another number of results than the node has outputs");
    }
    std::vector<std::pair<Value*, std::string>> constants;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* output = node->output(i);
      ConstTensor tensor = results.value()[i];
      if (tensor.dtype != output->dtype || SymShape(tensor.dims.begin(), tensor.dims.end()) != output->shape) {
        return internal_error("the evaluator gave " + dims_to_string(tensor.dims) + " for " + node->describe());
      }
      Value* constant = graph.add_constant(output->name, std::move(tensor));
      graph.replace_uses(output, constant);
      constants.emplace_back(constant, output->name);
    }
    graph.erase(node);
    for (const auto& [constant, name] : constants) graph.rename(constant, name);
    changed = true;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kFoldConstants{"fold_constants", run, false};

}  // namespace flywheel::passes
