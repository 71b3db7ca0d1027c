// SPDX-License-Identifier: Apache-2.0
// Slice{starts, ends, axes, steps} with ONNX's rules: negative bounds count from the end, all are clamped to the dim.
// `axes` may be absent (0, 1, ...), and so may `steps` (1).
#include "compiler/ops/slice.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

// A bound counted from the front: max(min(open, high), low), by ONNX's rules with [low, high] = [0, dim] going forward
// and
// [-1, dim - 1] going backward.
struct Bound {
  DimExpr open, low, high;
  DimExpr value() const { return DimExpr::max(DimExpr::min(open, high), low); }
};

Bound from_front(const ir::Node& node, DimExpr bound, const DimExpr& dim, bool forward) {
  const DimExpr low = forward ? 0 : -1, high = forward ? dim : dim - 1;
  if (std::optional<int64_t> constant = bound.constant()) {
    // Numbers far outside any extent mean the very beginning or end.
    if (*constant <= -std::numeric_limits<int32_t>::max()) return {low, low, high};
    if (*constant >= std::numeric_limits<int32_t>::max()) return {high, low, high};
    return {*constant < 0 ? dim + bound : bound, low, high};
  }
  if (bound.upper_bound().value_or(1) <= 0) {  // -n counts from the end, unless n is 0
    node.graph()->assume(0 - bound, DimExpr::max(0 - bound, 1));
    bound = dim + bound;
  }
  // A symbolic bound is taken to lie inside, unless the clamp is certain: views and shapes stay simple.
  DimExpr inside = DimExpr::max(DimExpr::min(bound, high), low);
  if (inside == high || inside == low) return {inside, low, high};
  node.graph()->assume(bound, DimExpr::max(inside, 0));
  return {bound, bound, bound};
}

Status infer_slice(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  FW_ASSIGN_OR_RETURN(std::vector<SliceRange> ranges, slice_ranges(node));
  SymShape shape;
  for (const SliceRange& range : ranges) shape.push_back(range.extent);
  set_output(node, 0, x.dtype, std::move(shape));
  std::optional<Elements> from = x.known_elements();
  if (!from || ranges.size() != 1) return Status::ok();
  std::optional<int64_t> start = ranges[0].start.constant(), extent = ranges[0].extent.constant();
  if (!start || !extent) return Status::ok();
  Elements elements;
  for (int64_t i = 0; i < *extent; ++i) elements.push_back((*from)[static_cast<size_t>(*start + i * ranges[0].step)]);
  set_elements(node, 0, std::move(elements));
  return Status::ok();
}

}  // namespace

Result<std::vector<SliceRange>> slice_ranges(const ir::Node& node) {
  const SymShape& shape = node.input(0)->shape;
  FW_ASSIGN_OR_RETURN(SymShape starts, require_dims(node, "starts"));
  FW_ASSIGN_OR_RETURN(SymShape ends, require_dims(node, "ends"));
  std::vector<int64_t> axes = node.ints_or("axes", {}), steps = node.ints_or("steps", {});
  if (!node.attributes.contains("axes")) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (!node.attributes.contains("steps")) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return invalid_argument(fmt::format("it has {} starts, {} ends, {} axes and {} steps; expected equal counts",
                                        starts.size(), ends.size(), axes.size(), steps.size()));
  }
  std::vector<SliceRange> ranges;
  for (const DimExpr& dim : shape) ranges.push_back({0, 1, dim});
  std::set<size_t> seen;
  for (size_t i = 0; i < axes.size(); ++i) {
    FW_ASSIGN_OR_RETURN(size_t axis, axis_in(axes[i], shape.size(), "axes"));
    if (!seen.insert(axis).second) return invalid_argument(fmt::format("attribute axes names dim {} twice", axis));
    int64_t step = steps[i];
    if (step == 0) return invalid_argument(fmt::format("the step of dim {} is 0", axis));
    if (step == std::numeric_limits<int64_t>::min()) step += 1;
    const DimExpr& dim = shape[axis];
    Bound start = from_front(node, starts[i], dim, step > 0), end = from_front(node, ends[i], dim, step > 0);
    const Bound &near = step > 0 ? start : end, &far = step > 0 ? end : start;
    // far - max(near, low) as a minimum, so that x[-3:] has min(3, n) elements. Where near is above high nothing is
    // left anyway.
    DimExpr span = DimExpr::min(far.value() - near.open, far.value() - near.low);
    int64_t magnitude = step > 0 ? step : -step;
    DimExpr extent = DimExpr::max(DimExpr::floor_div(span + (magnitude - 1), magnitude), 0);
    ranges[axis] = {start.value(), step, extent};
  }
  return ranges;
}

extern const Op kSlice{"Slice", 1, 1, 1, 1, {"starts", "ends", "axes", "steps"}, infer_slice};

}  // namespace flywheel::ops
