// SPDX-License-Identifier: Apache-2.0
// fuse_gelu: activations from the arithmetic that exporters write them as, whatever the order of the factors:
//   Gelu        0.5 * x * (1 + erf(x / sqrt 2))
//   its tanh form   0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//   HardSwish   x * clip(x + 3, 0, 6) / 6   or   x * hard_sigmoid(x; 1/6, 1/2)
//   Silu        x * sigmoid(x)
//   Mish        x * tanh(softplus(x))
// Each needs all its intermediate values to itself.
#include <algorithm>
#include <cmath>

#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace flywheel::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

bool near(double a, double b) { return std::abs(a - b) <= 1e-4 * std::abs(b); }

constexpr int kMostFactors = 4;  // of one product, in a row

// What a product multiplies, flattened: numbers into one factor, the rest in order. Inner products must be used here
// alone.
struct Factors {
  double number = 1;
  std::vector<Value*> values;
  std::vector<const Node*> nodes;
};

void collect(Value* value, const Node& user, Factors& factors, int depth = 0) {
  Node* node = value->producer();
  const bool inner = node && (used_only_by(*value, user) || &user == node) && depth < kMostFactors;
  if (inner && node->op() == "Mul" && node->output()->shape == value->shape) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      Value* operand = node->input(i);
      if (std::optional<double> c = scalar_constant(operand)) {
        factors.number *= *c;
      } else {
        collect(operand, *node, factors, depth + 1);
      }
    }
    factors.nodes.push_back(node);
    return;
  }
  if (inner && node->op() == "Div") {
    if (std::optional<WithScalar> quotient = match_scalar(value, "Div")) {
      factors.number /= quotient->c;
      collect(quotient->x, *node, factors, depth + 1);
      factors.nodes.push_back(node);
      return;
    }
  }
  factors.values.push_back(value);
}

struct Match {
  std::string_view op;
  Attributes attributes;
  Value* x = nullptr;
  std::vector<const Node*> nodes;  // in order, the root last
};

bool push_if_single(const Value* value, const Node& user, Match& match) {
  if (!value->producer() || !used_only_by(*value, user)) return false;
  match.nodes.insert(match.nodes.begin(), value->producer());
  return true;
}

// x * c, as Mul or Div.
bool is_multiple(const Value* value, const Value* x, double c) {
  if (std::optional<WithScalar> product = match_scalar(value, "Mul")) return product->x == x && near(product->c, c);
  if (std::optional<WithScalar> quotient = match_scalar(value, "Div"))
    return quotient->x == x && near(1 / quotient->c, c);
  return false;
}

// x^3 as Pow, or as products of x.
bool is_cube(const Value* value, const Value* x) {
  if (std::optional<WithScalar> power = match_scalar(value, "Pow")) return power->x == x && power->c == 3;
  const Node* product = made_by(value, "Mul");
  if (!product) return false;
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Node* square = made_by(product->input(i), "Mul");
    if (product->input(1 - i) == x && square && square->input(0) == x && square->input(1) == x) return true;
  }
  return false;
}

// sqrt(2 / pi) * (x + 0.044715 x^3).
bool is_tanh_argument(const Value* value, const Value* x) {
  std::optional<WithScalar> scaled = match_scalar(value, "Mul");
  if (!scaled || !near(scaled->c, std::sqrt(2 / M_PI))) return false;
  const Node* sum = made_by(scaled->x, "Add");
  if (!sum) return false;
  for (size_t i : {size_t{0}, size_t{1}}) {
    std::optional<WithScalar> cubic = match_scalar(sum->input(i), "Mul");
    if (sum->input(1 - i) == x && cubic && near(cubic->c, 0.044715) && is_cube(cubic->x, x)) return true;
  }
  return false;
}

// number * x * gate(x): the two values of `factors` in either order.
std::optional<Match> match_gated(const Factors& factors, const Node& root) {
  if (factors.values.size() != 2) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    Value* x = factors.values[i];
    Value* gate = factors.values[1 - i];
    const Node* user = nullptr;  // of the gate
    for (const Value::Use& use : gate->uses()) user = use.node;
    Match match;
    match.x = x;
    match.nodes = {factors.nodes.begin(), factors.nodes.end()};
    if (!user || !push_if_single(gate, *user, match)) continue;
    const Node& gated = *gate->producer();
    const double number = factors.number;
    if (near(number, 0.5)) {
      std::optional<WithScalar> sum = match_scalar(gate, "Add");
      if (!sum || sum->c != 1 || !push_if_single(sum->x, gated, match)) continue;
      const Node& inner = *sum->x->producer();
      if (inner.op() == "Erf" && is_multiple(inner.input(0), x, std::sqrt(0.5))) {
        match.op = "Gelu";
        match.attributes = {{"approximate", std::string("none")}};
        push_if_single(inner.input(0), inner, match);
        return match;
      }
      if (inner.op() == "Tanh" && is_tanh_argument(inner.input(0), x)) {
        match.op = "Gelu";
        match.attributes = {{"approximate", std::string("tanh")}};
        push_if_single(inner.input(0), inner, match);
        return match;
      }
    }
    if (near(number, 1.0 / 6) && gated.op() == "Clip" && gated.float_or("min", -1) == 0 &&
        gated.float_or("max", -1) == 6) {
      std::optional<WithScalar> sum = match_scalar(gated.input(0), "Add");
      if (sum && sum->x == x && sum->c == 3 && push_if_single(gated.input(0), gated, match)) {
        match.op = "HardSwish";
        return match;
      }
    }
    if (number != 1 || factors.nodes.size() != 1 || factors.nodes[0] != &root) continue;
    if (gated.op() == "HardSigmoid" && gated.input(0) == x && near(gated.float_or("alpha", 0.2), 1.0 / 6) &&
        gated.float_or("beta", 0.5) == 0.5) {
      match.op = "HardSwish";
      return match;
    }
    if (gated.op() == "Sigmoid" && gated.input(0) == x) {
      match.op = "Silu";
      return match;
    }
    if (gated.op() == "Tanh" && made_by(gated.input(0), "Softplus") && gated.input(0)->producer()->input(0) == x &&
        push_if_single(gated.input(0), gated, match)) {
      match.op = "Mish";
      return match;
    }
  }
  return std::nullopt;
}

std::optional<Match> match_activation(Node* node) {
  if ((node->op() != "Mul" && node->op() != "Div") || !is_float(node->output()->dtype)) return std::nullopt;
  Factors factors;
  collect(node->output(), *node, factors);
  std::optional<Match> match = match_gated(factors, *node);
  if (!match || match->x->shape != node->output()->shape) return std::nullopt;
  return match;
}

Result<bool> run(Graph& graph, const PassContext& context) {
  (void)context;
  bool changed = false;
  const std::vector<Node*> nodes = node_list(graph);
  std::set<const Node*> erased;
  for (size_t i = nodes.size(); i-- > 0;) {  // from the end: the widest product is tried first
    Node* node = nodes[i];
    if (erased.contains(node)) continue;
    std::optional<Match> match = match_activation(node);
    if (!match) continue;
    FW_ASSIGN_OR_RETURN(Value * made, add_before(graph, node, match->op, {match->x}, match->attributes));
    made->producer()->sources.clear();
    for (const Node* matched : match->nodes) add_sources(*made->producer(), matched->sources);
    add_sources(*made->producer(), node->sources);
    const std::vector<Node*> producers = producers_of(*node);
    FW_RETURN_IF_ERROR(replace_node(graph, node, made));
    erased.insert(node);
    for (Node* producer : producers) erase_unused(graph, producer, erased);
    changed = true;
  }
  return changed;
}

}  // namespace

const Pass kFuseGelu{"fuse_gelu", run, false};

}  // namespace flywheel::passes
