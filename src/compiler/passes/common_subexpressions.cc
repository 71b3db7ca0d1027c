// SPDX-License-Identifier: Apache-2.0
// common_subexpressions: of nodes that compute the same, and of constants that are the same, the first one stays. What
// every layer of a model prepares anew, such as an attention mask, is then computed once.
#include <algorithm>
#include <cstring>

#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::ConstTensor;
using ir::Graph;
using ir::Node;
using ir::Value;

// A few bytes from all over: equal for equal tensors, and telling most others apart.
uint64_t sample(const ConstTensor& tensor) {
  uint64_t hash = 0xcbf29ce484222325u;
  const size_t size = tensor.size_bytes();
  const size_t step = std::max<size_t>(1, size / 256);
  for (size_t i = 0; i < size; i += step) {
    hash = (hash ^ static_cast<uint64_t>(tensor.data.get()[i])) * 0x100000001b3u;
  }
  return hash;
}

bool merge_constants(Graph& graph) {
  std::map<std::tuple<DType, Dims, uint64_t>, std::vector<Value*>> seen;
  bool changed = false;
  for (Value* value : graph.values()) {
    if (!value->is_constant() || value->is_graph_output()) continue;
    std::vector<Value*>& alike = seen[{value->dtype, value->constant->dims, sample(*value->constant)}];
    auto same = std::find_if(alike.begin(), alike.end(),
                             [&](const Value* other) { return other->constant->same_content(*value->constant); });
    if (same == alike.end()) {
      alike.push_back(value);
    } else if (!value->uses().empty()) {
      graph.replace_uses(value, *same);
      changed = true;
    }
  }
  return changed;
}

bool same_attribute(const ir::Attribute& a, const ir::Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& left) {
        using T = std::decay_t<decltype(left)>;
        const T& right = std::get<T>(b);
        if constexpr (std::is_same_v<T, ConstTensor>) {
          return left.same_content(right);
        } else if constexpr (std::is_same_v<T, double>) {
          return std::memcmp(&left, &right, sizeof left) == 0;
        } else {
          return left == right;  // subgraphs: only the very same
        }
      },
      a);
}

bool same_computation(const Node& a, const Node& b) {
  return a.op() == b.op() && a.inputs() == b.inputs() && a.outputs().size() == b.outputs().size() &&
         a.attributes.size() == b.attributes.size() &&
         std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && same_attribute(x.second, y.second);
         });
}

// Outputs of the graph keep values of their own.
bool may_stand_for(const Node& kept, const Node& other) {
  for (size_t i = 0; i < kept.outputs().size(); ++i) {
    if (kept.output(i)->is_graph_output() && other.output(i)->is_graph_output()) return false;
  }
  return true;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = merge_constants(graph);
  std::map<const Value*, size_t> number;  // keys that are the same on every run
  for (const Value* value : graph.values()) number.emplace(value, number.size());
  std::map<std::pair<std::string, std::vector<size_t>>, std::vector<Node*>> seen;
  for (Node* node : node_list(graph)) {
    const ops::Op* op = ops::find_op(node->op());
    if (!op || !op->deterministic) continue;
    std::vector<size_t> operands;
    for (const Value* input : node->inputs()) {
      auto known = number.find(input);  // an outer graph's value is none of ours
      operands.push_back(known == number.end() ? number.size() : known->second);
    }
    std::vector<Node*>& alike = seen[{node->op(), operands}];
    auto same = std::find_if(alike.begin(), alike.end(), [&](const Node* other) {
      return same_computation(*other, *node) && may_stand_for(*other, *node);
    });
    if (same == alike.end()) {
      alike.push_back(node);
      continue;
    }
    add_sources(**same, node->sources);
    for (size_t i = 0; i < node->outputs().size(); ++i) graph.replace_uses(node->output(i), (*same)->output(i));
    graph.erase(node);
    changed = true;
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kCommonSubexpressions{"common_subexpressions", run, false};

}  // namespace flywheel::passes
