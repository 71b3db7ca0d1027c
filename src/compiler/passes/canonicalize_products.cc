// SPDX-License-Identifier: Apache-2.0
// canonicalize_products: matrix products in the two forms that kernels have. Gemm{transB} is rows times a constant
// matrix, with any number of leading dims and a bias; MatMul multiplies two computed matrices. alpha, beta and transA
// become nodes of their own, a MatMul by a constant becomes a Gemm and takes a bias that is added to it, and a Gemm
// over reshaped rows works on the rows unreshaped.
#include <algorithm>

#include "compiler/passes/constant_eval.h"
#include "compiler/passes/moves.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

Result<Value*> scaled(Graph& graph, Node* node, Value* x, double factor) {
  if (factor == 1) return x;
  return add_before(graph, node, "Mul", {x, add_scalar(graph, x->dtype, factor, "scale")});
}

Result<Value*> swapped(Graph& graph, Node* node, Value* x, bool swap) {
  if (!swap) return x;
  return add_before(graph, node, "Transpose", {x}, {{"perm", Perm{1, 0}}});
}

bool is_plain(const Node& gemm) {
  return gemm.float_or("alpha", 1) == 1 && gemm.float_or("beta", 1) == 1 && gemm.int_or("transA", 0) == 0 &&
         gemm.input(1)->is_constant();
}

// alpha * A' B' + beta * C in steps.
Result<bool> split_gemm(Graph& graph, Node* node) {
  if (node->attributes.contains("program")) return false;
  if (is_plain(*node)) {  // nothing to do, so nothing to say
    const size_t before = node->attributes.size();
    for (std::string_view name : {"alpha", "beta", "transA"}) node->attributes.erase(std::string(name));
    return node->attributes.size() != before;
  }
  const double alpha = node->float_or("alpha", 1), beta = node->float_or("beta", 1);
  const bool trans_b = node->int_or("transB", 0) != 0;
  FW_ASSIGN_OR_RETURN(Value * a, swapped(graph, node, node->input(0), node->int_or("transA", 0) != 0));
  Value* b = node->input(1);
  Value* c = beta == 0 ? nullptr : node->input(2);
  // A plain bias stays the Gemm's own operand.
  const bool keeps_bias = b->is_constant() && alpha == 1 && c;
  if (c) {
    FW_ASSIGN_OR_RETURN(c, scaled(graph, node, c, beta));
  }
  Value* product = nullptr;
  if (b->is_constant()) {
    std::vector<Value*> inputs{a, b};
    if (keeps_bias) inputs.push_back(c);
    FW_ASSIGN_OR_RETURN(product, add_before(graph, node, "Gemm", inputs, {{"transB", int64_t{trans_b}}}));
  } else {
    FW_ASSIGN_OR_RETURN(b, swapped(graph, node, b, trans_b));
    FW_ASSIGN_OR_RETURN(product, add_before(graph, node, "MatMul", {a, b}));
  }
  FW_ASSIGN_OR_RETURN(product, scaled(graph, node, product, alpha));
  if (c && !keeps_bias) {
    FW_ASSIGN_OR_RETURN(product, add_before(graph, node, "Add", {product, c}));
  }
  FW_RETURN_IF_ERROR(replace_node(graph, node, product));
  return true;
}

Result<bool> matmul_to_gemm(Graph& graph, Node* node) {
  Value* a = node->input(0);
  Value* b = node->input(1);
  if (!b->is_constant() || a->rank() < 2 || b->rank() < 2 || b->rank() > a->rank()) return false;
  const Dims& dims = b->constant->dims;
  if (std::any_of(dims.begin(), dims.end() - 2, [](int64_t d) { return d != 1; })) return false;
  if (b->rank() > 2) {
    b = graph.add_constant(b->name, reshaped(*b->constant, {dims[dims.size() - 2], dims.back()}));
  }
  FW_ASSIGN_OR_RETURN(Value * product, add_before(graph, node, "Gemm", {a, b}, {{"transB", int64_t{0}}}));
  FW_RETURN_IF_ERROR(replace_node(graph, node, product));
  return true;
}

// A constant that lies along the last dim alone, as a vector; null otherwise.
Value* as_bias(Graph& graph, Value* constant, const DimExpr& columns) {
  if (!constant->is_constant() || constant->dtype != DType::kFloat32 || constant->rank() < 1) return nullptr;
  if (constant->shape.back() != columns || product(constant->shape, 0, constant->shape.size() - 1) != DimExpr(1)) {
    return nullptr;
  }
  if (constant->rank() == 1) return constant;
  return graph.add_constant(constant->name, reshaped(*constant->constant, {constant->constant->dims.back()}));
}

// Add(Gemm(a, b), bias).
Result<bool> take_bias(Graph& graph, Node* add) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    Node* gemm = made_by(add->input(i), "Gemm");
    if (!gemm || gemm->input(2) || gemm->attributes.contains("program") || !is_plain(*gemm)) continue;
    if (gemm->output()->single_user() != add || gemm->output()->shape != add->output()->shape) continue;
    Value* bias = as_bias(graph, add->input(1 - i), gemm->output()->shape.back());
    if (!bias) continue;
    FW_ASSIGN_OR_RETURN(Value * made,
                        add_before(graph, add, "Gemm", {gemm->input(0), gemm->input(1), bias}, gemm->attributes));
    made->producer()->sources = joined_sources({gemm, add});
    FW_RETURN_IF_ERROR(replace_node(graph, add, made));
    graph.erase(gemm);
    return true;
  }
  return false;
}

// Reshape(Gemm(Reshape(x), b, c)) where x has the rows as leading dims and the result has them again.
Result<bool> skip_reshapes(Graph& graph, Node* after) {
  Node* gemm = made_by(after->input(0), "Gemm");
  Node* before = gemm ? made_by(gemm->input(0), "Reshape") : nullptr;
  if (!before || !is_plain(*gemm) || gemm->attributes.contains("program")) return false;
  if (gemm->output()->single_user() != after) return false;
  if (gemm->input(2) && gemm->input(2)->rank() > 1) return false;
  Value* x = before->input(0);
  if (x->rank() < 2 || x->shape.back() != gemm->input(0)->shape.back()) return false;
  SymShape shape = x->shape;
  shape.back() = gemm->output()->shape.back();
  if (shape != after->output()->shape) return false;
  std::vector<Value*> inputs = gemm->inputs();
  inputs[0] = x;
  FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, after, "Gemm", std::move(inputs), gemm->attributes));
  made->producer()->sources = joined_sources({before, gemm, after});
  FW_RETURN_IF_ERROR(replace_node(graph, after, made));
  graph.erase(gemm);
  return true;
}

Result<bool> rewrite(Graph& graph, Node* node) {
  if (node->op() == "Gemm") return split_gemm(graph, node);
  if (node->op() == "MatMul") return matmul_to_gemm(graph, node);
  if (node->op() == "Add") return take_bias(graph, node);
  if (node->op() == "Reshape") return skip_reshapes(graph, node);
  return false;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false, again = true;
  while (again) {
    again = false;
    for (const Node* found : node_list(graph)) {
      FW_ASSIGN_OR_RETURN(bool rewritten, rewrite(graph, const_cast<Node*>(found)));
      again |= rewritten;
    }
    if (again) graph.erase_dead();
    changed |= again;
  }
  return changed;
}

}  // namespace

const Pass kCanonicalizeProducts{"canonicalize_products", run, true};

}  // namespace flywheel::passes
