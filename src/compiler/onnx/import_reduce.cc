// SPDX-License-Identifier: Apache-2.0
// Reductions, ArgMax and ArgMin, TopK, CumSum. Axes are an attribute or an operand, as the opset has it. Called through
// import_list.inc.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

// These leave a single element as it is.
constexpr std::string_view kPlain[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"};

// `given`: nullopt or empty for all axes.
Status emit_reduce(NodeContext& node, std::optional<std::vector<int64_t>> given, bool noop_when_empty) {
  ir::Value* x = node.input(0);
  const bool keep_dims = node.get_bool("keepdims", true);
  std::vector<int64_t> axes = given ? *std::move(given) : std::vector<int64_t>();
  for (int64_t& axis : axes) {
    FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, x->rank(), "an axis of 'axes'"));
  }
  const bool is_plain = std::find(std::begin(kPlain), std::end(kPlain), node.op_type()) != std::end(kPlain);
  if (axes.empty() && noop_when_empty && !is_plain) return unsupported("noop_with_empty_axes without axes");
  if (axes.empty() && !noop_when_empty) {
    for (int i = 0; i < x->rank(); ++i) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  if (axes.empty() && is_plain) {  // nothing is reduced, or a scalar is
    node.set_output(0, x);
    return Status::ok();
  }
  return node.emit_outputs(node.op_type(), {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keep_dims}}});
}

}  // namespace

Status import_reduce_attributes(NodeContext& node) { return emit_reduce(node, node.get_ints("axes"), false); }

Status import_reduce(NodeContext& node) {
  const bool noop = node.get_bool("noop_with_empty_axes", false);
  std::optional<std::vector<int64_t>> axes;
  if (node.input(1) != nullptr) {
    FW_ASSIGN_OR_RETURN(axes, node.ints_operand(1, "axes"));
  }
  return emit_reduce(node, std::move(axes), noop);
}

Status import_arg_reduce(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", 0), node.input(0)->rank()));
  Attributes attributes{{"axis", axis}, {"keepdims", int64_t{node.get_bool("keepdims", true)}}};
  if (node.opset() >= 12) attributes.emplace("select_last_index", int64_t{node.get_bool("select_last_index", false)});
  return node.emit_outputs(node.op_type(), node.inputs(), std::move(attributes));
}

Status import_top_k(NodeContext& node) {
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.get_int("axis", -1), x->rank()));
  Attributes attributes{{"axis", axis}};
  if (node.opset() < 10) {
    attributes.emplace("k", node.require_int("k"));
  } else {
    FW_ASSIGN_OR_RETURN(std::vector<int64_t> k, node.ints_operand(1, "k"));
    if (k.size() != 1) return invalid_argument(fmt::format("its k has {} values; one is expected", k.size()));
    attributes.emplace("k", k[0]);
  }
  if (node.opset() >= 11) {
    attributes.emplace("largest", int64_t{node.get_bool("largest", true)});
    attributes.emplace("sorted", int64_t{node.get_bool("sorted", true)});
  }
  return node.emit_outputs("TopK", {x}, std::move(attributes), 2);
}

Status import_cum_sum(NodeContext& node) {
  ir::Value* x = node.input(0);
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> given, node.ints_operand(1, "axis"));
  if (given.size() != 1) return invalid_argument(fmt::format("its axis has {} values; one is expected", given.size()));
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(given[0], x->rank()));
  const bool exclusive = node.get_bool("exclusive", false), reverse = node.get_bool("reverse", false);
  return node.emit_outputs("CumSum", {x},
                           {{"axis", axis}, {"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}});
}

}  // namespace flywheel::onnx_import
