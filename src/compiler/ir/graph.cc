// SPDX-License-Identifier: Apache-2.0
// Graph editing that keeps use lists, order and names right. Nodes carry an order number that ascends along the list
// with gaps, so that inserting is cheap and use lists stay in node order; uses by nodes of subgraphs come after the
// graph's own.
#include "compiler/ir/graph.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace flywheel::ir {
namespace {

constexpr int64_t kOrderGap = int64_t{1} << 24;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "flywheel: a pass misused the graph: %s\n", what);
  std::abort();
}

template <class Visit>  // visit(Graph&) for each graph among the node's attributes
void for_each_subgraph(const Node& node, const Visit& visit) {
  for (const auto& [name, attribute] : node.attributes) {
    if (auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute); graph && *graph) visit(**graph);
  }
}

}  // namespace

// --- values and nodes
// ----------------------------------------------------------------------------------------------------

Node* Value::single_user() const { return uses_.size() == 1 && graph_output_count_ == 0 ? uses_[0].node : nullptr; }

std::optional<std::vector<DimExpr>> Value::known_elements() const {
  if (elements) return elements;
  if (!constant || constant->dims.size() > 1 || is_float(constant->dtype)) return std::nullopt;
  int64_t count = constant->elements();
  if (count > kMaxKnownElements) return std::nullopt;
  std::vector<DimExpr> result;
  for (int64_t i = 0; i < count; ++i) result.emplace_back(constant->as_int(i));
  return result;
}

int64_t Node::int_or(std::string_view name, int64_t fallback) const {
  const auto* value = find<int64_t>(name);
  return value ? *value : fallback;
}

double Node::float_or(std::string_view name, double fallback) const {
  if (const auto* value = find<double>(name)) return *value;
  const auto* integer = find<int64_t>(name);
  return integer ? static_cast<double>(*integer) : fallback;
}

std::string Node::string_or(std::string_view name, std::string fallback) const {
  const auto* value = find<std::string>(name);
  return value ? *value : std::move(fallback);
}

std::vector<int64_t> Node::ints_or(std::string_view name, std::vector<int64_t> fallback) const {
  const auto* value = find<std::vector<int64_t>>(name);
  return value ? *value : std::move(fallback);
}

std::string Node::describe() const {
  constexpr size_t kShown = 8;
  std::string text = op_;
  if (!sources.empty()) {
    text += fmt::format(" '{}'", sources[0]);
  } else if (!outputs_.empty() && outputs_[0]) {
    text += fmt::format(" %{}", outputs_[0]->name);
  }
  text += " (";
  for (size_t i = 0; i < inputs_.size() && i < kShown; ++i) {
    if (i > 0) text += ", ";
    text += inputs_[i] ? "%" + inputs_[i]->name : "_";
  }
  if (inputs_.size() > kShown) text += fmt::format(", and {} more", inputs_.size() - kShown);
  return text + ")";
}

// --- the graph
// -----------------------------------------------------------------------------------------------------------

Graph::~Graph() {
  for (const auto& node : nodes_) {
    for (size_t i = 0; i < node->inputs_.size(); ++i) {
      if (node->inputs_[i] && node->inputs_[i]->graph_ != this) drop_use(node->inputs_[i], node.get(), i);
    }
  }
  for (Value* output : outputs_) {
    if (output->graph_ != this) --output->graph_output_count_;
  }
  nodes_.clear();  // before the values, which subgraphs among the attributes still use
}

void Graph::assume(const DimExpr& a, const DimExpr& b) {
  if (a == b) return;
  auto pair = b < a ? std::pair(b, a) : std::pair(a, b);
  if (assumption_set_.insert(pair).second) assumptions_.push_back(std::move(pair));
}

bool Graph::assumes(const DimExpr& a, const DimExpr& b) const {
  return a == b || assumption_set_.contains(b < a ? std::pair(b, a) : std::pair(a, b));
}

void Graph::keep_assumptions(size_t count) {
  while (assumptions_.size() > count) {
    assumption_set_.erase(assumptions_.back());
    assumptions_.pop_back();
  }
}

std::string Graph::unique_name(std::string_view wanted) {
  std::string base(wanted.empty() ? "value" : wanted);
  if (!find_value(base)) return base;
  int64_t& suffix = next_suffix_.try_emplace(base, 1).first->second;
  std::string name;
  do {
    name = fmt::format("{}_{}", base, suffix++);
  } while (find_value(name));
  return name;
}

Value* Graph::new_value(std::string_view wanted_name) {
  auto value = std::make_unique<Value>();
  value->name = unique_name(wanted_name);
  value->graph_ = this;
  value->slot_ = values_.size();
  by_name_[value->name] = value.get();
  values_.push_back(std::move(value));
  return values_.back().get();
}

void Graph::delete_value(Value* value) {
  by_name_.erase(value->name);
  values_[value->slot_].reset();
  ++erased_values_;
  if (erased_values_ * 2 <= values_.size()) return;
  std::erase_if(values_, [](const auto& v) { return v == nullptr; });
  for (size_t i = 0; i < values_.size(); ++i) values_[i]->slot_ = i;
  erased_values_ = 0;
}

Value* Graph::add_input(std::string_view name, DType dtype, SymShape shape) {
  Value* value = new_value(name);
  value->dtype = dtype;
  value->shape = std::move(shape);
  inputs_.push_back(value);
  return value;
}

Value* Graph::add_constant(std::string_view name, ConstTensor tensor) {
  Value* value = new_value(name);
  value->dtype = tensor.dtype;
  value->shape.assign(tensor.dims.begin(), tensor.dims.end());
  value->constant = std::move(tensor);
  return value;
}

void Graph::add_output(Value* value, std::string_view output_name) {
  outputs_.push_back(value);
  output_names_.emplace_back(output_name);
  ++value->graph_output_count_;
}

void Graph::replace_output(size_t i, Value* value) {
  require(i < outputs_.size(), "replace_output() past the end");
  --outputs_[i]->graph_output_count_;
  outputs_[i] = value;
  ++value->graph_output_count_;
}

Value* Graph::find_value(std::string_view name) const {
  for (const Graph* graph = this; graph; graph = graph->parent) {
    if (auto it = graph->by_name_.find(name); it != graph->by_name_.end()) return it->second;
  }
  return nullptr;
}

void Graph::rename(Value* value, std::string_view name) {
  if (value->name == name) return;
  by_name_.erase(value->name);
  value->name = unique_name(name);
  by_name_[value->name] = value;
}

// --- uses and order
// ------------------------------------------------------------------------------------------------------

bool Graph::use_before(const Value::Use& a, const Value::Use& b) {
  return std::tie(a.node->order_, a.operand) < std::tie(b.node->order_, b.operand);
}

void Graph::add_use(Value* value, Node* node, size_t operand) {
  Value::Use use{node, static_cast<int>(operand)};
  const Graph* owner = value->graph_;
  if (!owner->is_own_use(use)) {
    value->uses_.push_back(use);
    return;
  }
  auto own_end = std::partition_point(value->uses_.begin(), value->uses_.end(),
                                      [&](const Value::Use& u) { return owner->is_own_use(u); });
  value->uses_.insert(std::upper_bound(value->uses_.begin(), own_end, use, use_before), use);
}

void Graph::drop_use(Value* value, Node* node, size_t operand) {
  Value::Use use{node, static_cast<int>(operand)};
  const Graph* owner = value->graph_;
  auto it = value->uses_.begin();
  if (owner->is_own_use(use)) {
    auto own_end = std::partition_point(value->uses_.begin(), value->uses_.end(),
                                        [&](const Value::Use& u) { return owner->is_own_use(u); });
    it = std::lower_bound(value->uses_.begin(), own_end, use, use_before);
  } else {
    it = std::find_if(value->uses_.begin(), value->uses_.end(),
                      [&](const Value::Use& u) { return u.node == node && u.operand == use.operand; });
  }
  require(it != value->uses_.end() && it->node == node && it->operand == use.operand, "a use list lost an entry");
  value->uses_.erase(it);
}

void Graph::renumber() {
  int64_t order = 0;
  for (const auto& node : nodes_) node->order_ = order += kOrderGap;
}

Node* Graph::add_node(std::string_view op, std::vector<Value*> inputs, int output_count, Node* before,
                      std::vector<std::string> output_names) {
  auto position = nodes_.insert(before ? before->position_ : nodes_.end(), std::make_unique<Node>());
  Node* node = position->get();
  node->op_ = op;
  node->graph_ = this;
  node->position_ = position;
  int64_t low = position == nodes_.begin() ? 0 : (*std::prev(position))->order_;
  int64_t high = before ? before->order_ : low + 2 * kOrderGap;
  node->order_ = low + (high - low) / 2;
  if (node->order_ == low) renumber();
  node->inputs_ = std::move(inputs);
  for (size_t i = 0; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i]) add_use(node->inputs_[i], node, i);
  }
  for (int i = 0; i < output_count; ++i) {
    size_t index = static_cast<size_t>(i);
    Value* value = new_value(index < output_names.size() ? std::string_view(output_names[index]) : op);
    value->producer_ = node;
    value->producer_output_ = i;
    node->outputs_.push_back(value);
  }
  return node;
}

Node* Graph::next(const Node* node) const {
  auto it = std::next(node->position_);
  return it == nodes_.end() ? nullptr : it->get();
}

void Graph::set_input(Node* node, size_t operand, Value* value) {
  if (operand >= node->inputs_.size()) node->inputs_.resize(operand + 1, nullptr);
  if (node->inputs_[operand] == value) return;
  if (node->inputs_[operand]) drop_use(node->inputs_[operand], node, operand);
  node->inputs_[operand] = value;
  if (value) add_use(value, node, operand);
}

void Graph::remove_input(Node* node, size_t operand) {
  require(operand < node->inputs_.size(), "remove_input() past the end");
  for (size_t i = operand; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i]) drop_use(node->inputs_[i], node, i);
  }
  node->inputs_.erase(node->inputs_.begin() + static_cast<ptrdiff_t>(operand));
  for (size_t i = operand; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i]) add_use(node->inputs_[i], node, i);
  }
}

void Graph::replace_uses(Value* from, Value* to) {
  if (from == to) return;
  std::vector<Value::Use> uses = std::move(from->uses_);
  from->uses_.clear();
  for (const Value::Use& use : uses) {
    use.node->inputs_[static_cast<size_t>(use.operand)] = to;
    add_use(to, use.node, static_cast<size_t>(use.operand));
  }
  // Subgraphs may hand an outer value through as their output.
  std::vector<Graph*> pending{from->graph_};
  while (!pending.empty() && from->graph_output_count_ > 0) {
    Graph* graph = pending.back();
    pending.pop_back();
    for (size_t i = 0; i < graph->outputs_.size(); ++i) {
      if (graph->outputs_[i] == from) graph->replace_output(i, to);
    }
    for (const auto& node : graph->nodes_) for_each_subgraph(*node, [&](Graph& inner) { pending.push_back(&inner); });
  }
}

void Graph::erase(Node* node) {
  for (const Value* output : node->outputs_) {
    require(output->uses_.empty() && output->graph_output_count_ == 0, "erase() of a node whose output is used");
  }
  for (size_t i = 0; i < node->inputs_.size(); ++i) {
    if (node->inputs_[i]) drop_use(node->inputs_[i], node, i);
  }
  for (Value* output : node->outputs_) delete_value(output);
  nodes_.erase(node->position_);
}

int Graph::erase_dead() {
  int count = 0;
  for (auto it = nodes_.end(); it != nodes_.begin();) {
    Node* node = std::prev(it)->get();
    bool dead = std::all_of(node->outputs_.begin(), node->outputs_.end(),
                            [](const Value* v) { return v->uses_.empty() && v->graph_output_count_ == 0; });
    if (dead) {
      erase(node);  // `it` is the node after it
      ++count;
      continue;
    }
    for_each_subgraph(*node, [&](Graph& inner) { count += inner.erase_dead(); });
    --it;
  }
  std::vector<Value*> unused;
  for (const auto& value : values_) {
    if (value && value->constant && value->uses_.empty() && value->graph_output_count_ == 0)
      unused.push_back(value.get());
  }
  for (Value* value : unused) delete_value(value);
  return count + static_cast<int>(unused.size());
}

void Graph::sort() {
  // Kahn's algorithm, always taking the ready node that came first: an order that is right already stays.
  struct State {
    int waits = 0;
    std::vector<Node*> users;
  };
  std::unordered_map<Node*, State> states;
  states.reserve(nodes_.size());
  std::function<void(Node*, const Node&)> depend = [&](Node* user, const Node& reader) {
    for (const Value* input : reader.inputs_) {
      if (!input || !input->producer_ || input->graph_ != this || input->producer_ == user) continue;
      states[input->producer_].users.push_back(user);
      ++states[user].waits;
    }
    for_each_subgraph(reader, [&](Graph& inner) {
      for (const auto& node : inner.nodes_) depend(user, *node);
      for (const Value* output : inner.outputs_) {
        if (output->producer_ && output->graph_ == this && output->producer_ != user) {
          states[output->producer_].users.push_back(user);
          ++states[user].waits;
        }
      }
    });
  };
  renumber();
  for (const auto& node : nodes_) depend(node.get(), *node);
  auto later = [](const Node* a, const Node* b) { return a->order_ > b->order_; };
  std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(later);
  for (const auto& node : nodes_) {
    if (states[node.get()].waits == 0) ready.push(node.get());
  }
  std::list<std::unique_ptr<Node>> sorted;
  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    sorted.splice(sorted.end(), nodes_, node->position_);
    for (Node* user : states[node].users) {
      if (--states[user].waits == 0) ready.push(user);
    }
  }
  sorted.splice(sorted.end(), nodes_);  // nodes on a cycle keep their order, for verify() to name
  nodes_ = std::move(sorted);
  renumber();
  for (const auto& value : values_) {
    if (!value) continue;
    auto own_end = std::partition_point(value->uses_.begin(), value->uses_.end(),
                                        [&](const Value::Use& u) { return is_own_use(u); });
    std::sort(value->uses_.begin(), own_end, use_before);
  }
}

std::vector<Value*> Graph::values() const {
  std::vector<Value*> all(inputs_);
  for (const auto& value : values_) {
    if (value && value->constant) all.push_back(value.get());
  }
  for (const auto& node : nodes_) all.insert(all.end(), node->outputs_.begin(), node->outputs_.end());
  return all;
}

}  // namespace flywheel::ir
