// SPDX-License-Identifier: Apache-2.0
// Slice: bounds are attributes before opset 10 and operands since. Called through import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

Status emit_slice(NodeContext& node, SymShape starts, SymShape ends, std::optional<std::vector<int64_t>> axes,
                  std::optional<std::vector<int64_t>> steps) {
  const int rank = node.input(0)->rank();
  const size_t count = starts.size();
  if (!axes) {
    axes.emplace();
    for (size_t i = 0; i < count; ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (!steps) steps.emplace(count, 1);
  if (ends.size() != count || axes->size() != count || steps->size() != count) {
    return invalid_argument(fmt::format("it has {} starts, {} ends, {} axes and {} steps; the counts must be equal",
                                        count, ends.size(), axes->size(), steps->size()));
  }
  uint64_t seen = 0;
  for (int64_t& axis : *axes) {
    FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, rank));
    if (seen >> axis & 1) return invalid_argument(fmt::format("axis {} is given twice", axis));
    seen |= uint64_t{1} << axis;
  }
  for (int64_t step : *steps) {
    if (step == 0) return invalid_argument("a step is 0");
  }
  if (count == 0) {
    node.set_output(0, node.input(0));
    return Status::ok();
  }
  return node.emit_outputs("Slice", {node.input(0)},
                           {{"starts", std::move(starts)},
                            {"ends", std::move(ends)},
                            {"axes", *std::move(axes)},
                            {"steps", *std::move(steps)}});
}

}  // namespace

Status import_slice_attributes(NodeContext& node) {
  const auto starts = node.get_ints("starts"), ends = node.get_ints("ends");
  auto axes = node.get_ints("axes");
  if (!starts || !ends) return invalid_argument("attributes 'starts' and 'ends' are needed");
  return emit_slice(node, SymShape(starts->begin(), starts->end()), SymShape(ends->begin(), ends->end()),
                    std::move(axes), std::nullopt);
}

Status import_slice(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(SymShape starts, node.dims_operand(1, "starts"));
  FW_ASSIGN_OR_RETURN(SymShape ends, node.dims_operand(2, "ends"));
  std::optional<std::vector<int64_t>> axes, steps;
  if (node.input(3) != nullptr) {
    FW_ASSIGN_OR_RETURN(axes, node.ints_operand(3, "axes"));
  }
  if (node.input(4) != nullptr) {
    FW_ASSIGN_OR_RETURN(steps, node.ints_operand(4, "steps"));
  }
  return emit_slice(node, std::move(starts), std::move(ends), std::move(axes), std::move(steps));
}

}  // namespace flywheel::onnx_import
