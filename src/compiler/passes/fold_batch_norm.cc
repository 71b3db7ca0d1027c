// SPDX-License-Identifier: Apache-2.0
// fold_batch_norm: BatchNormalization after a convolution or a Gemm with constant weights goes into weights and bias;
// so do a Mul and an Add by a constant a channel, which is what decompose makes of one that stands alone.
#include <algorithm>
#include <cmath>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::ConstTensor;
using ir::Graph;
using ir::Node;
using ir::Value;

constexpr std::string_view kName = "fold_batch_norm";

// y = x * factor + offset, a number a channel each.
struct Affine {
  std::vector<double> factor, offset;
};

std::optional<Affine> batch_norm_affine(const Node& node) {
  for (size_t i = 1; i < 5; ++i) {
    if (!node.input(i) || !node.input(i)->is_constant() || node.input(i)->dtype != DType::kFloat32) return std::nullopt;
  }
  const double epsilon = node.float_or("epsilon", 1e-5);
  const ConstTensor &scale = *node.input(1)->constant, &bias = *node.input(2)->constant;
  const ConstTensor &mean = *node.input(3)->constant, &variance = *node.input(4)->constant;
  Affine affine;
  for (int64_t c = 0; c < scale.elements(); ++c) {
    const double factor = scale.as_double(c) / std::sqrt(variance.as_double(c) + epsilon);
    affine.factor.push_back(factor);
    affine.offset.push_back(bias.as_double(c) - mean.as_double(c) * factor);
  }
  return affine;
}

// The constant operand of a Mul or Add when it is one number, or one a channel (dim 1), of x.
std::optional<Affine> arithmetic_affine(const Node& node, const Value& x) {
  const Value* constant = node.input(1);
  if (node.input(0) != &x || !constant || !constant->is_constant() || constant->dtype != DType::kFloat32)
    return std::nullopt;
  std::optional<int64_t> channels = constant_dim(x, 1);
  if (!channels || constant->rank() > x.rank() || node.output()->shape != x.shape) return std::nullopt;
  const Dims& dims = constant->constant->dims;
  const size_t channel_dim = dims.size() + 1 - x.shape.size();  // where dim 1 of x is; wraps around when there is none
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != 1 && (i != channel_dim || dims[i] != *channels)) return std::nullopt;
  }
  Affine affine;
  const bool is_mul = node.op() == "Mul";
  for (int64_t c = 0; c < *channels; ++c) {
    const double value = constant->constant->as_double(constant->constant->elements() == 1 ? 0 : c);
    affine.factor.push_back(is_mul ? value : 1);
    affine.offset.push_back(is_mul ? 0 : value);
  }
  return affine;
}

bool is_foldable_root(const Node* node) {
  if (!node || (node->op() != "Conv" && node->op() != "ConvTranspose" && node->op() != "Gemm")) return false;
  if (node->attributes.contains("program") || !node->input(1)->is_constant()) return false;
  if (node->input(1)->dtype != DType::kFloat32) return false;
  if (node->op() == "Gemm" && (node->output()->rank() != 2 || node->float_or("alpha", 1) != 1 ||
                               node->float_or("beta", 1) != 1 || node->int_or("transA", 0) != 0)) {
    return false;
  }
  const Value* bias = node->input(2);
  return !bias || (bias->is_constant() && bias->rank() == 1 && bias->dtype == DType::kFloat32);
}

// The output channel that element `i` of the weights contributes to.
std::function<int64_t(int64_t)> channel_of(const Node& root) {
  const Dims dims = root.input(1)->constant->dims;
  const int64_t inner = element_count(std::span(dims).subspan(1));
  if (root.op() == "Conv") return [inner](int64_t i) { return i / inner; };
  if (root.op() == "Gemm") {
    const bool trans_b = root.int_or("transB", 0) != 0;
    return [inner, trans_b](int64_t i) { return trans_b ? i / inner : i % inner; };
  }
  // [C, K / groups, ...]: the group is the input channel's.
  const int64_t groups = root.int_or("group", 1), per_group = dims[1];
  const int64_t rest = inner / std::max<int64_t>(per_group, 1), inputs_a_group = std::max<int64_t>(dims[0] / groups, 1);
  return [=](int64_t i) { return i / inner / inputs_a_group * per_group + i / rest % per_group; };
}

Status fold_into(Graph& graph, Node* root, Node* node, const Affine& affine) {
  const ConstTensor& weights = *root->input(1)->constant;
  const std::function<int64_t(int64_t)> channel = channel_of(*root);
  std::vector<Value*> inputs{root->input(0), root->input(1), root->input(2)};
  const bool scales = std::any_of(affine.factor.begin(), affine.factor.end(), [](double f) { return f != 1; });
  if (scales) {
    inputs[1] = graph.add_constant(root->input(1)->name, mapped(weights, [&](float w, int64_t i) {
                                     return static_cast<float>(w * affine.factor[static_cast<size_t>(channel(i))]);
                                   }));
  }
  const auto channels = static_cast<int64_t>(affine.factor.size());
  const ConstTensor* old_bias = root->input(2) ? &*root->input(2)->constant : nullptr;
  std::vector<float> bias;
  for (int64_t c = 0; c < channels; ++c) {
    const double before = !old_bias ? 0 : old_bias->as_double(old_bias->elements() == 1 ? 0 : c);
    bias.push_back(
        static_cast<float>(before * affine.factor[static_cast<size_t>(c)] + affine.offset[static_cast<size_t>(c)]));
  }
  inputs[2] = graph.add_constant(node->output()->name + ".bias",
                                 ConstTensor::from<float>(DType::kFloat32, {channels}, std::span<const float>(bias)));
  FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, node, root->op(), std::move(inputs), root->attributes));
  made->producer()->sources = joined_sources({root, node});
  FW_RETURN_IF_ERROR(replace_node(graph, node, made));
  graph.erase(root);
  return Status::ok();
}

Result<bool> run(Graph& graph, const PassContext& context) {
  bool changed = false;
  for (Node* node : node_list(graph)) {
    const bool is_norm = node->op() == "BatchNormalization";
    if ((!is_norm && node->op() != "Mul" && node->op() != "Add") || node->outputs().size() != 1) continue;
    Value* x = node->input(0);
    Node* root = x->producer();
    std::optional<Affine> affine = is_norm ? batch_norm_affine(*node) : arithmetic_affine(*node, *x);
    if (!affine) {
      if (is_norm) context.remark(kName, *node, "not folded: its parameters are computed or not f32");
      continue;
    }
    std::optional<int64_t> channels = constant_dim(*x, 1);
    if (!channels || *channels != static_cast<int64_t>(affine->factor.size())) continue;
    if (is_foldable_root(root) && x->single_user() == node) {
      FW_RETURN_IF_ERROR(fold_into(graph, root, node, *affine));
      changed = true;
      continue;
    }
    if (is_norm && is_foldable_root(root)) {
      context.remark(kName, *node, "not folded into " + root->describe() + ": its result is also used elsewhere");
    }
  }
  if (changed) graph.erase_dead();
  return changed;
}

}  // namespace

const Pass kFoldBatchNorm{"fold_batch_norm", run, false};

}  // namespace flywheel::passes
