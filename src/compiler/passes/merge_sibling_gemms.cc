// SPDX-License-Identifier: Apache-2.0
// merge_sibling_gemms: Gemms of one operand whose results are the q, k and v of attentions become one wider Gemm and a
// Split, whose parts are views: fewer and better filled products. Weights are joined, so each must be used once.
#include <algorithm>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// The Gemm that makes an operand of an attention, through moves that only it uses.
Node* gemm_of(Value* value) {
  for (int depth = 0; depth < 8 && value->single_user(); ++depth) {
    Node* node = value->producer();
    if (!node) return nullptr;
    if (node->op() == "Gemm") return node;
    if (node->op() != "Reshape" && node->op() != "Transpose") return nullptr;
    value = node->input(0);
  }
  return nullptr;
}

bool is_mergeable(const Node& gemm) {
  const Value* weights = gemm.input(1);
  const Value* bias = gemm.input(2);
  return !gemm.attributes.contains("program") && weights->is_constant() && weights->single_user() &&
         weights->dtype == DType::kFloat32 && gemm.float_or("alpha", 1) == 1 && gemm.float_or("beta", 1) == 1 &&
         gemm.int_or("transA", 0) == 0 && (!bias || (bias->is_constant() && bias->rank() == 1)) &&
         constant_dim(*gemm.output(), gemm.output()->shape.size() - 1).has_value();
}

ir::ConstTensor bias_of(const Node& gemm, int64_t columns) {
  if (!gemm.input(2)) return ir::ConstTensor::zeros(DType::kFloat32, {columns});
  return broadcast(*gemm.input(2)->constant, {columns});
}

Status merge(Graph& graph, const std::vector<Node*>& gemms) {
  Node* first = gemms.front();
  const bool trans_b = first->int_or("transB", 0) != 0;
  std::vector<ir::ConstTensor> weights, biases;
  SymShape columns;
  bool any_bias = false;
  std::vector<std::string> sources;
  for (const Node* gemm : gemms) {
    columns.push_back(gemm->output()->shape.back());
    weights.push_back(*gemm->input(1)->constant);
    biases.push_back(bias_of(*gemm, *columns.back().constant()));
    any_bias |= gemm->input(2) != nullptr;
    sources.insert(sources.end(), gemm->sources.begin(), gemm->sources.end());
  }
  const std::string name = first->output()->name;
  std::vector<Value*> inputs{first->input(0),
                             graph.add_constant(name + ".merged_weights", concatenated(weights, trans_b ? 0 : 1))};
  if (any_bias) inputs.push_back(graph.add_constant(name + ".merged_bias", concatenated(biases, 0)));
  FW_ASSIGN_OR_RETURN(Node * wide,
                      ops::add(graph, "Gemm", std::move(inputs), {{"transB", int64_t{trans_b}}}, first, 1, sources));
  graph.rename(wide->output(), name + ".merged");
  FW_ASSIGN_OR_RETURN(Node * split,
                      ops::add(graph, "Split", {wide->output()},
                               {{"axis", static_cast<int64_t>(wide->output()->rank() - 1)}, {"split", columns}}, first,
                               static_cast<int>(gemms.size()), {}));
  for (size_t i = 0; i < gemms.size(); ++i) {
    const std::string part = gemms[i]->output()->name;
    graph.replace_uses(gemms[i]->output(), split->output(i));
    graph.erase(gemms[i]);
    graph.rename(split->output(i), part);
  }
  return Status::ok();
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  const std::vector<Node*> nodes = node_list(graph);
  std::map<const Node*, size_t> position;
  for (size_t i = 0; i < nodes.size(); ++i) position[nodes[i]] = i;
  std::map<size_t, std::vector<Node*>> groups;  // by the position of the group's first Gemm
  std::map<std::pair<const Value*, int64_t>, std::set<size_t>> by_operand;
  for (const Node* node : nodes) {
    if (node->op() != "Attention") continue;
    for (size_t i = 0; i < 3; ++i) {
      Node* gemm = gemm_of(node->input(i));
      if (gemm && is_mergeable(*gemm)) {
        by_operand[{gemm->input(0), gemm->int_or("transB", 0)}].insert(position.at(gemm));
      }
    }
  }
  for (const auto& [key, members] : by_operand) {
    if (members.size() < 2) continue;
    std::vector<Node*>& group = groups[*members.begin()];
    for (size_t member : members) group.push_back(nodes[member]);
  }
  for (const auto& [first, group] : groups) FW_RETURN_IF_ERROR(merge(graph, group));
  if (!groups.empty()) graph.erase_dead();
  return !groups.empty();
}

}  // namespace

const Pass kMergeSiblingGemms{"merge_sibling_gemms", run, false};

}  // namespace flywheel::passes
