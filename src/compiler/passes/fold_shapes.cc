// SPDX-License-Identifier: Apache-2.0
// fold_shapes: integers that inference knows become constants; those that are expressions of dims and are read as data
// become Ranges, which the engine fills when shapes are bound. The Shape, Gather, Concat ... chains that computed them
// are then dead.
#include <algorithm>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool is_part(const Value* value) { return value && (value->is_constant() || made_by(value, "Range")); }

// Already in the form that this pass gives.
bool is_materialised(const Value& value) {
  const Value* at = &value;
  for (int depth = 0; depth < 3 && (made_by(at, "Reshape") || made_by(at, "Identity")); ++depth) {
    at = at->producer()->input(0);
  }
  if (is_part(at)) return true;
  const Node* concat = made_by(at, "Concat");
  return concat && std::all_of(concat->inputs().begin(), concat->inputs().end(), is_part);
}

// What reads the value computes more than further known integers.
bool reads_data(const Node& user) {
  return std::any_of(user.outputs().begin(), user.outputs().end(),
                     [](const Value* output) { return !output->known_elements(); });
}

// Adds nodes in one place on behalf of one node.
struct Adder {
  Graph& graph;
  Node* before;  // null: at the end
  const Node& origin;

  Result<Value*> operator()(std::string_view op, std::vector<Value*> inputs, Attributes attributes) const {
    FW_ASSIGN_OR_RETURN(Node * node,
                        ops::add(graph, op, std::move(inputs), std::move(attributes), before, 1, origin.sources));
    return node->output();
  }
  Result<Value*> range(DType dtype, const DimExpr& start, const DimExpr& step, int64_t count) const {
    return (*this)("Range", {},
                   {{"start", SymShape{start}},
                    {"step", SymShape{step}},
                    {"count", SymShape{count}},
                    {"dtype", static_cast<int64_t>(dtype)}});
  }
};

// Null when there is no form for the type.
Result<Value*> materialise(const Adder& add, const Value& value, const std::vector<DimExpr>& elements) {
  Graph& graph = add.graph;
  const bool plain = std::all_of(elements.begin(), elements.end(), [](const DimExpr& e) { return e.is_constant(); });
  if (plain) {
    std::vector<double> numbers;
    for (const DimExpr& element : elements) numbers.push_back(static_cast<double>(*element.constant()));
    Dims dims;
    if (value.rank() == 1) dims.push_back(static_cast<int64_t>(elements.size()));
    if (value.dtype == DType::kInt64) {  // beyond 2^53, too: the "to the end" of a Slice
      std::vector<int64_t> integers;
      for (const DimExpr& element : elements) integers.push_back(*element.constant());
      return graph.add_constant(value.name,
                                ir::ConstTensor::from<int64_t>(value.dtype, dims, std::span<const int64_t>(integers)));
    }
    FW_ASSIGN_OR_RETURN(ir::ConstTensor tensor, from_doubles(value.dtype, dims, numbers));
    return graph.add_constant(value.name, std::move(tensor));
  }
  if (value.dtype != DType::kInt64 && value.dtype != DType::kInt32) return nullptr;
  const auto count = static_cast<int64_t>(elements.size());
  const DimExpr step = count > 1 ? elements[1] - elements[0] : DimExpr(1);
  bool even = true;
  for (size_t i = 2; i < elements.size(); ++i) even = even && elements[i] - elements[i - 1] == step;
  Value* made = nullptr;
  if (even) {
    FW_ASSIGN_OR_RETURN(made, add.range(value.dtype, elements[0], step, count));
  } else {
    std::vector<Value*> parts;
    for (const DimExpr& element : elements) {
      FW_ASSIGN_OR_RETURN(Value * part, add.range(value.dtype, element, 1, 1));
      parts.push_back(part);
    }
    FW_ASSIGN_OR_RETURN(made, add("Concat", parts, {{"axis", int64_t{0}}}));
  }
  if (made->shape == value.shape) return made;
  return add("Reshape", {made}, {{"shape", value.shape}});
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  for (Node* node : node_list(graph)) {
    for (Value* value : node->outputs()) {
      std::optional<std::vector<DimExpr>> elements = value->known_elements();
      if (!elements || elements->empty() || is_float(value->dtype) || is_materialised(*value)) continue;
      std::vector<Value::Use> readers;
      for (const Value::Use& use : value->uses()) {
        if (reads_data(*use.node)) readers.push_back(use);
      }
      if (readers.empty() && !value->is_graph_output()) continue;
      FW_ASSIGN_OR_RETURN(Value * made, materialise({graph, graph.next(node), *node}, *value, *elements));
      if (!made) continue;
      for (const Value::Use& use : readers) graph.set_input(use.node, static_cast<size_t>(use.operand), made);
      if (value->is_graph_output()) {
        if (!made->producer()) {
          FW_ASSIGN_OR_RETURN(made, Adder({graph, graph.next(node), *node})("Identity", {made}, {}));
        }
        graph.replace_uses(value, made);
      }
      changed = true;
    }
  }
  graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kFoldShapes{"fold_shapes", run, true};

}  // namespace flywheel::passes
