// SPDX-License-Identifier: Apache-2.0
// Recomputes what the graph keeps redundantly and compares. Inference runs on the graph's own nodes, whose outputs are
// put back.
#include "compiler/ir/verify.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <unordered_set>

#include "compiler/ops/op.h"

namespace flywheel::ir {
namespace {

Status broken(const Node& node, std::string_view what) {
  return internal_error(fmt::format("{}: {}", node.describe(), what));
}

std::string type_text(const Value& value) {
  return std::string(dtype_name(value.dtype)) + sym_shape_to_string(value.shape);
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  Status run() {
    FW_RETURN_IF_ERROR(check_values());
    for (const Graph* g = graph_.parent; g; g = g->parent) {
      for (const Value* value : g->values()) outer_.insert(value);
    }
    for (const Value* value : graph_.inputs()) defined_.insert(value);
    for (const Value* value : graph_.values()) {
      if (value->constant) defined_.insert(value);
    }
    for (const auto& node : graph_.nodes()) {
      FW_RETURN_IF_ERROR(check_node(*node));
      FW_RETURN_IF_ERROR(check_inference(*node));
      for (const Value* output : node->outputs()) defined_.insert(output);
    }
    FW_RETURN_IF_ERROR(check_outputs());
    return check_uses();
  }

 private:
  Status check_values() {
    std::set<std::string_view> names;
    for (const Value* value : graph_.values()) {
      if (!names.insert(value->name).second)
        return internal_error(fmt::format("two values are named %{}", value->name));
      if (graph_.find_value(value->name) != value)
        return internal_error(fmt::format("%{} is not found by its name", value->name));
      if (value->constant) {
        const ConstTensor& tensor = *value->constant;
        std::optional<int64_t> count = checked_element_count(tensor.dims);
        if (value->producer() || tensor.dtype != value->dtype ||
            SymShape(tensor.dims.begin(), tensor.dims.end()) != value->shape) {
          return internal_error(fmt::format("constant %{} is {}, but its tensor is {} {}", value->name,
                                            type_text(*value), dtype_name(tensor.dtype), dims_to_string(tensor.dims)));
        }
        if (!count || (*count > 0 && !tensor.data))
          return internal_error(fmt::format("constant %{} has no data", value->name));
      }
    }
    return Status::ok();
  }

  Status check_node(const Node& node) {
    if (!ops::find_op(node.op())) return broken(node, "there is no operator of this name");
    if (node.graph() != &graph_) return broken(node, "it belongs to another graph");
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value* value = node.inputs()[i];
      if (!value) continue;
      if (!defined_.contains(value) && !outer_.contains(value)) {
        return broken(node, fmt::format("operand {} is produced after it, or erased", i));
      }
      uses_[value].push_back({&node, static_cast<int>(i)});
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Value* value = node.outputs()[i];
      if (!value || value->producer() != &node || value->producer_output() != static_cast<int>(i) || value->constant) {
        return broken(node, fmt::format("output {} does not name it as its producer", i));
      }
    }
    for (const auto& [name, attribute] : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (!body) continue;
      if (!*body || (*body)->parent != &graph_) return broken(node, fmt::format("graph {} has another parent", name));
      if (Status status = verify(**body); !status.is_ok()) return status.with_context(fmt::format("graph {}", name));
      collect_inner_uses(**body);
    }
    return Status::ok();
  }

  void collect_inner_uses(const Graph& body) {
    for (const auto& node : body.nodes()) {
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        if (const Value* value = node->inputs()[i]) inner_uses_[value].insert({node.get(), static_cast<int>(i)});
      }
      for (const auto& [name, attribute] : node->attributes) {
        if (const auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute)) collect_inner_uses(**inner);
      }
    }
    for (const Value* output : body.outputs()) inner_outputs_.insert(output);
  }

  Status check_inference(const Node& node) {
    struct Saved {
      DType dtype;
      SymShape shape;
      std::optional<std::vector<DimExpr>> elements;
    };
    std::vector<Saved> saved;
    for (const Value* value : node.outputs()) saved.push_back({value->dtype, value->shape, value->elements});
    size_t assumptions = graph_.assumptions().size();
    Node& mutable_node = const_cast<Node&>(node);
    Status status = ops::infer(mutable_node);
    bool assumes_more = graph_.assumptions().size() > assumptions;
    std::string assumed;
    if (assumes_more) {
      const auto& [a, b] = graph_.assumptions().back();
      assumed = fmt::format("{} == {}", a.to_string(), b.to_string());
      mutable_node.graph()->keep_assumptions(assumptions);
    }
    std::string wrong;
    for (size_t i = 0; i < saved.size(); ++i) {
      Value& value = *node.outputs()[i];
      std::string inferred = type_text(value);
      bool same = value.dtype == saved[i].dtype && value.shape == saved[i].shape;
      bool same_elements = !value.elements || !saved[i].elements || *value.elements == *saved[i].elements;
      value.dtype = saved[i].dtype;
      value.shape = std::move(saved[i].shape);
      value.elements = std::move(saved[i].elements);
      if (!same)
        wrong = fmt::format("output %{} is {}, but inference gives {}", value.name, type_text(value), inferred);
      if (!same_elements) wrong = fmt::format("output %{} has other known elements than inference gives", value.name);
    }
    if (!status.is_ok()) return internal_error(status.message());
    if (!wrong.empty()) return broken(node, wrong);
    if (assumes_more)
      return broken(node,
                    fmt::format("inference assumes {}, which the graph does not: run ops::infer() on it", assumed));
    return Status::ok();
  }

  Status check_outputs() {
    if (graph_.outputs().size() != graph_.output_names().size())
      return internal_error("outputs and their names differ in count");
    std::set<const Value*> outputs;
    std::set<std::string_view> names;
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Value* value = graph_.outputs()[i];
      if (!defined_.contains(value) && !outer_.contains(value)) {
        return internal_error(
            fmt::format("output \"{}\" is a value that is not in the graph", graph_.output_names()[i]));
      }
      if (!names.insert(graph_.output_names()[i]).second) {
        return internal_error(fmt::format("two outputs are named \"{}\"", graph_.output_names()[i]));
      }
      outputs.insert(value);
    }
    for (const Value* value : graph_.values()) {
      bool is_output = outputs.contains(value) || inner_outputs_.contains(value);
      if (value->is_graph_output() != is_output) {
        return internal_error(fmt::format("%{} {} a graph output, but counts as {}", value->name,
                                          is_output ? "is" : "is not", is_output ? "none" : "one"));
      }
    }
    return Status::ok();
  }

  Status check_uses() {
    for (const Value* value : graph_.values()) {
      const auto& own = uses_[value];
      const auto& inner = inner_uses_[value];
      bool same = value->uses().size() == own.size() + inner.size();
      for (size_t i = 0; same && i < value->uses().size(); ++i) {
        const Value::Use& use = value->uses()[i];
        std::pair<const Node*, int> pair{use.node, use.operand};
        same = i < own.size() ? own[i] == pair : inner.contains(pair);
      }
      if (!same)
        return internal_error(fmt::format("the use list of %{} does not match the nodes that use it", value->name));
    }
    return Status::ok();
  }

  const Graph& graph_;
  std::unordered_set<const Value*> defined_, outer_, inner_outputs_;
  std::map<const Value*, std::vector<std::pair<const Node*, int>>> uses_;
  std::map<const Value*, std::set<std::pair<const Node*, int>>> inner_uses_;
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace flywheel::ir
