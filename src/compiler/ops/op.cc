// SPDX-License-Identifier: Apache-2.0
// The operator table and what holds for all of them: operand counts, attribute names and types, and outputs whose sizes
// fit.
#include "compiler/ops/op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "compiler/ops/attribute_types.h"

namespace flywheel::ops {

#define FLYWHEEL_OP(name) extern const Op k##name;
#include "compiler/ops/op_list.inc"
#undef FLYWHEEL_OP

namespace {

constexpr const Op* kOps[] = {
#define FLYWHEEL_OP(name) &k##name,
#include "compiler/ops/op_list.inc"
#undef FLYWHEEL_OP
};

std::string range_text(int min, int max) {
  if (max < 0) return fmt::format("{} or more", min);
  return min == max ? std::to_string(min) : fmt::format("{} to {}", min, max);
}

Status check_form(const Op& op, const ir::Node& node) {
  int inputs = static_cast<int>(node.inputs().size()), outputs = static_cast<int>(node.outputs().size());
  if (inputs < op.min_inputs || (op.max_inputs >= 0 && inputs > op.max_inputs)) {
    return invalid_argument(
        fmt::format("it has {} operands; expected {}", inputs, range_text(op.min_inputs, op.max_inputs)));
  }
  if (outputs < op.min_outputs || (op.max_outputs >= 0 && outputs > op.max_outputs)) {
    return invalid_argument(
        fmt::format("it has {} outputs; expected {}", outputs, range_text(op.min_outputs, op.max_outputs)));
  }
  for (int i = 0; i < op.min_inputs; ++i) {
    if (!node.inputs()[static_cast<size_t>(i)])
      return invalid_argument(fmt::format("operand {} is absent; it is required", i));
  }
  for (const auto& [name, attribute] : node.attributes) {
    if (std::find(op.attributes.begin(), op.attributes.end(), name) == op.attributes.end()) {
      return invalid_argument(
          fmt::format("attribute {} is unknown; it may have: {}", name,
                      op.attributes.empty() ? "none" : fmt::format("{}", fmt::join(op.attributes, ", "))));
    }
    FW_RETURN_IF_ERROR(check_attribute_type(name, attribute));
  }
  return Status::ok();
}

Status check_output(const ir::Value& value) {
  if (value.rank() > kMaxRank) {
    return unsupported(
        fmt::format("output %{} has {} dims; at most {} are supported", value.name, value.rank(), kMaxRank));
  }
  Dims known;
  for (size_t i = 0; i < value.shape.size(); ++i) {
    const DimExpr& dim = value.shape[i];
    if (dim.is_undefined()) {
      return invalid_argument(
          fmt::format("dim {} of output %{} overflows 64 bits, divides by zero or is too complicated", i, value.name));
    }
    if (dim.upper_bound().value_or(0) < 0) {
      return invalid_argument(
          fmt::format("dim {} of output %{} is {}, which is negative", i, value.name, dim.to_string()));
    }
    if (dim.constant()) known.push_back(*dim.constant());
  }
  std::optional<int64_t> count = checked_element_count(known);
  int64_t bytes;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(dtype_size(value.dtype)), &bytes)) {
    return invalid_argument(fmt::format("output %{} of shape {} is larger than 64 bits can count", value.name,
                                        sym_shape_to_string(value.shape)));
  }
  return Status::ok();
}

Status infer_checked(const Op& op, ir::Node& node) {
  FW_RETURN_IF_ERROR(check_form(op, node));
  for (ir::Value* output : node.outputs()) output->elements.reset();
  FW_RETURN_IF_ERROR(op.infer(node));
  for (const ir::Value* output : node.outputs()) FW_RETURN_IF_ERROR(check_output(*output));
  return Status::ok();
}

}  // namespace

std::span<const Op* const> all_ops() { return kOps; }

const Op* find_op(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const Op*>;
    for (const Op* op : kOps) map->emplace(op->name, op);
    return map;
  }();
  auto it = by_name->find(name);
  return it == by_name->end() ? nullptr : it->second;
}

Status infer(ir::Node& node) {
  const Op* op = find_op(node.op());
  if (!op) return unsupported(fmt::format("{}: there is no operator of this name", node.describe()));
  Status status = infer_checked(*op, node);
  return status.is_ok() ? status : status.with_context(node.describe());
}

Result<ir::Node*> add(ir::Graph& graph, std::string_view op, std::vector<ir::Value*> inputs,
                      std::map<std::string, ir::Attribute, std::less<>> attributes, ir::Node* before, int outputs,
                      std::vector<std::string> sources) {
  ir::Node* node = graph.add_node(op, std::move(inputs), outputs, before);
  node->attributes = std::move(attributes);
  node->sources = std::move(sources);
  if (Status status = infer(*node); !status.is_ok()) {
    graph.erase(node);
    return status;
  }
  return node;
}

Status infer_graph(ir::Graph& graph) {
  for (const auto& node : graph.nodes()) FW_RETURN_IF_ERROR(infer(*node));
  return Status::ok();
}

}  // namespace flywheel::ops
