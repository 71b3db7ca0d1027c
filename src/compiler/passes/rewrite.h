// SPDX-License-Identifier: Apache-2.0
// The verbs in which passes are written: reading what surrounds a node, and replacing nodes so that names and sources
// survive. Values and nodes belong to their graph; nothing here keeps them.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ops/op.h"

namespace flywheel::passes {

using Attributes = std::map<std::string, ir::Attribute, std::less<>>;

// The node that makes `value`, if its op is `op`; null otherwise (also for a null value).
ir::Node* made_by(const ir::Value* value, std::string_view op);
bool is_elementwise(const ir::Node& node);
// All uses of `value` are operands of `node`, and it is no graph output.
bool used_only_by(const ir::Value& value, const ir::Node& node);
// A constant of exactly one element, of any rank; its value.
std::optional<double> scalar_constant(const ir::Value* value);
// A constant all of whose elements are equal; their value.
std::optional<double> splat_constant(const ir::Value* value);

// `value` is Op(x, c) with a one-element constant c that does not enlarge x. Either order for Add and Mul.
struct WithScalar {
  ir::Value* x;
  double c;
};
std::optional<WithScalar> match_scalar(const ir::Value* value, std::string_view op);

// Extent as a plain number.
std::optional<int64_t> constant_dim(const ir::Value& value, size_t axis);
std::optional<Dims> constant_dims(const SymShape& shape);
// Elements when every symbol is `symbol_value`: for comparing costs only. Saturates.
double estimated_elements(const SymShape& shape, int64_t symbol_value = 256);
DimExpr product(const SymShape& shape, size_t first = 0, size_t last = SIZE_MAX);
// An axis attribute, from the end when negative.
size_t normalized_axis(int64_t axis, size_t rank);

// The sources of the nodes, in the order given, each once.
std::vector<std::string> joined_sources(std::initializer_list<const ir::Node*> nodes);
void add_sources(ir::Node& to, const std::vector<std::string>& sources);

// All uses of `from` become uses of `to`; when `to` cannot be a graph output itself (an input, a constant, an output
// already), an Identity stands between.
Status replace_value(ir::Graph& graph, ir::Value* from, ir::Value* to);
// `to` takes the place and the name of `node`'s only output, and `node` is erased. `to` must be new, with no other use.
Status replace_node(ir::Graph& graph, ir::Node* node, ir::Value* to);
// The same where `to` existed before: its name stays.
Status bypass_node(ir::Graph& graph, ir::Node* node, ir::Value* to);

// ops::add with the sources of `origin`, placed before it; gives output 0.
Result<ir::Value*> add_before(ir::Graph& graph, const ir::Node* origin, std::string_view op,
                              std::vector<ir::Value*> inputs, Attributes attributes = {});
Result<ir::Value*> add_reshape(ir::Graph& graph, const ir::Node* origin, ir::Value* x, const SymShape& shape);
Result<ir::Value*> add_transpose(ir::Graph& graph, const ir::Node* origin, ir::Value* x, std::vector<int64_t> perm);
// One-element constant of rank 0.
ir::Value* add_scalar(ir::Graph& graph, DType dtype, double value, std::string_view name = "scalar");

// Erases `node` if nothing uses it, then what it alone used, and so on; notes the erased in `erased`. For passes that
// walk a node_list() and check it.
void erase_unused(ir::Graph& graph, ir::Node* node, std::set<const ir::Node*>& erased);
// The producers of a node's operands, each once.
std::vector<ir::Node*> producers_of(const ir::Node& node);

// Nodes in order, as pointers that a pass may walk while it adds and erases.
std::vector<ir::Node*> node_list(const ir::Graph& graph);

}  // namespace flywheel::passes
