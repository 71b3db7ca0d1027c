// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/rewrite.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace flywheel::passes {

using ir::ConstTensor;
using ir::Graph;
using ir::Node;
using ir::Value;

Node* made_by(const Value* value, std::string_view op) {
  if (!value || !value->producer() || value->producer()->op() != op) return nullptr;
  return value->producer();
}

bool is_elementwise(const Node& node) {
  const ops::Op* op = ops::find_op(node.op());
  return op && op->instruction && node.outputs().size() == 1 && op->instruction(node).has_value();
}

bool used_only_by(const Value& value, const Node& node) {
  if (value.is_graph_output()) return false;
  return std::all_of(value.uses().begin(), value.uses().end(),
                     [&](const Value::Use& use) { return use.node == &node; });
}

std::optional<double> scalar_constant(const Value* value) {
  if (!value || !value->constant || value->constant->elements() != 1) return std::nullopt;
  return value->constant->as_double(0);
}

std::optional<double> splat_constant(const Value* value) {
  if (!value || !value->constant || value->constant->elements() < 1) return std::nullopt;
  const ConstTensor& tensor = *value->constant;
  const size_t size = dtype_size(tensor.dtype);
  const std::byte* bytes = tensor.data.get();
  for (int64_t i = 1; i < tensor.elements(); ++i) {
    if (std::memcmp(bytes, bytes + static_cast<size_t>(i) * size, size) != 0) return std::nullopt;
  }
  return tensor.as_double(0);
}

std::optional<WithScalar> match_scalar(const Value* value, std::string_view op) {
  Node* node = made_by(value, op);
  if (!node || node->inputs().size() != 2) return std::nullopt;
  for (int constant : {1, 0}) {
    if (constant == 0 && op != "Add" && op != "Mul") break;
    Value* x = node->input(1 - constant);
    std::optional<double> c = scalar_constant(node->input(constant));
    if (c && x && x->shape == value->shape) return WithScalar{x, *c};
  }
  return std::nullopt;
}

std::optional<int64_t> constant_dim(const Value& value, size_t axis) {
  return axis < value.shape.size() ? value.shape[axis].constant() : std::nullopt;
}

std::optional<Dims> constant_dims(const SymShape& shape) {
  Dims dims;
  for (const DimExpr& dim : shape) {
    std::optional<int64_t> extent = dim.constant();
    if (!extent || *extent < 0) return std::nullopt;
    dims.push_back(*extent);
  }
  return dims;
}

double estimated_elements(const SymShape& shape, int64_t symbol_value) {
  double elements = 1;
  std::map<std::string, int64_t, std::less<>> symbols;
  for (const DimExpr& dim : shape) {
    for (const std::string& symbol : dim.symbols()) symbols[symbol] = symbol_value;
    Result<int64_t> extent = dim.evaluate(symbols);
    elements *= extent.is_ok() && extent.value() > 0 ? static_cast<double>(extent.value()) : 1.0;
  }
  return elements;
}

DimExpr product(const SymShape& shape, size_t first, size_t last) {
  DimExpr result = 1;
  for (size_t i = first; i < std::min(last, shape.size()); ++i) result = result * shape[i];
  return result;
}

size_t normalized_axis(int64_t axis, size_t rank) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

void add_sources(Node& to, const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    if (std::find(to.sources.begin(), to.sources.end(), source) == to.sources.end()) to.sources.push_back(source);
  }
}

std::vector<std::string> joined_sources(std::initializer_list<const Node*> nodes) {
  std::vector<std::string> joined;
  for (const Node* node : nodes) {
    for (const std::string& source : node ? node->sources : std::vector<std::string>()) {
      if (std::find(joined.begin(), joined.end(), source) == joined.end()) joined.push_back(source);
    }
  }
  return joined;
}

Status replace_value(Graph& graph, Value* from, Value* to) {
  if (from->is_graph_output() && (to->is_graph_output() || !to->producer())) {
    Node* before = from->producer();
    FW_ASSIGN_OR_RETURN(Node * identity, ops::add(graph, "Identity", {to}, {}, before, 1, before->sources));
    to = identity->output();
  }
  graph.replace_uses(from, to);
  return Status::ok();
}

Status replace_node(Graph& graph, Node* node, Value* to) {
  const std::string name = node->output()->name;
  FW_RETURN_IF_ERROR(replace_value(graph, node->output(), to));
  graph.erase(node);
  graph.rename(to, name);
  return Status::ok();
}

Status bypass_node(Graph& graph, Node* node, Value* to) {
  FW_RETURN_IF_ERROR(replace_value(graph, node->output(), to));
  graph.erase(node);
  return Status::ok();
}

Result<Value*> add_before(Graph& graph, const Node* origin, std::string_view op, std::vector<Value*> inputs,
                          Attributes attributes) {
  FW_ASSIGN_OR_RETURN(Node * node, ops::add(graph, op, std::move(inputs), std::move(attributes),
                                            const_cast<Node*>(origin), 1, origin->sources));
  return node->output();
}

Result<Value*> add_reshape(Graph& graph, const Node* origin, Value* x, const SymShape& shape) {
  if (x->shape == shape) return x;
  return add_before(graph, origin, "Reshape", {x}, {{"shape", shape}});
}

Result<Value*> add_transpose(Graph& graph, const Node* origin, Value* x, std::vector<int64_t> perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return add_before(graph, origin, "Transpose", {x}, {{"perm", std::move(perm)}});
}

Value* add_scalar(Graph& graph, DType dtype, double value, std::string_view name) {
  ConstTensor tensor = ConstTensor::zeros(dtype, {});
  auto store = [&](auto typed) {
    tensor = ConstTensor::from<decltype(typed)>(dtype, {}, std::span<const decltype(typed)>(&typed, 1));
  };
  switch (dtype) {
    case DType::kFloat64: store(value); break;
    case DType::kInt64: store(static_cast<int64_t>(value)); break;
    case DType::kInt32: store(static_cast<int32_t>(value)); break;
    case DType::kBool: store(static_cast<uint8_t>(value != 0)); break;
    default: store(static_cast<float>(value)); break;
  }
  return graph.add_constant(name, std::move(tensor));
}

std::vector<Node*> producers_of(const Node& node) {
  std::vector<Node*> producers;
  for (const Value* input : node.inputs()) {
    Node* producer = input ? input->producer() : nullptr;
    if (producer && std::find(producers.begin(), producers.end(), producer) == producers.end()) {
      producers.push_back(producer);
    }
  }
  return producers;
}

void erase_unused(Graph& graph, Node* node, std::set<const Node*>& erased) {
  std::vector<Node*> pending{node};
  while (!pending.empty()) {
    Node* candidate = pending.back();
    pending.pop_back();
    if (erased.contains(candidate) || candidate->graph() != &graph) continue;
    const bool used = std::any_of(candidate->outputs().begin(), candidate->outputs().end(),
                                  [](const Value* v) { return !v->uses().empty() || v->is_graph_output(); });
    if (used) continue;
    for (Node* producer : producers_of(*candidate)) pending.push_back(producer);
    erased.insert(candidate);
    graph.erase(candidate);
  }
}

std::vector<Node*> node_list(const Graph& graph) {
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

}  // namespace flywheel::passes
