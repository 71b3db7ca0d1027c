// SPDX-License-Identifier: Apache-2.0
// Resize in its forms of opset 10, 11, 13 and 18, and Upsample before it. Called through import_list.inc.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {
namespace {

Status check_scales(const NodeContext& node, const std::vector<double>& scales) {
  if (scales.size() != static_cast<size_t>(node.input(0)->rank())) {
    return invalid_argument(
        fmt::format("it has {} scales for an input with {} dims", scales.size(), node.input(0)->rank()));
  }
  for (double scale : scales) {
    if (!(scale > 0) || scale > 1e6) return invalid_argument(fmt::format("a scale is {}", scale));
  }
  return Status::ok();
}

// Before opset 11: pixel i of the result is pixel i / scale of the input.
Status emit_old(NodeContext& node, std::vector<double> scales) {
  FW_RETURN_IF_ERROR(check_scales(node, scales));
  std::string mode = node.get_string("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  if (mode != "nearest" && mode != "linear")
    return unsupported(fmt::format("attribute 'mode' is '{}'; nearest and linear are supported", mode));
  // When the image shrinks, runtimes take the next pixel up, and weights were trained so.
  const bool shrinks = std::any_of(scales.begin(), scales.end(), [](double s) { return s < 1; });
  return node.emit_outputs("Resize", {node.input(0)},
                           {{"scales", std::move(scales)},
                            {"mode", mode},
                            {"coordinate_transformation_mode", std::string("asymmetric")},
                            {"nearest_mode", std::string(shrinks ? "ceil" : "floor")}});
}

// The extents for sizes that name only some axes or keep the aspect ratio.
Status resolve_sizes(NodeContext& node, const std::optional<std::vector<int64_t>>& axes, const std::string& policy,
                     SymShape* sizes) {
  const SymShape& shape = node.input(0)->shape;
  const size_t count = axes ? axes->size() : shape.size();
  if (sizes->size() != count) return invalid_argument(fmt::format("it has {} sizes for {} axes", sizes->size(), count));
  SymShape full = shape;
  for (size_t i = 0; i < count; ++i) full[axes ? (*axes)[i] : static_cast<int64_t>(i)] = (*sizes)[i];
  if (policy != "stretch") {
    double scale = policy == "not_larger" ? INFINITY : 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
      const auto from = shape[axis].constant(), to = full[axis].constant();
      if (!from || !to || *from == 0)
        return unsupported(fmt::format("keep_aspect_ratio_policy '{}' with varying extents", policy));
      const double ratio = static_cast<double>(*to) / static_cast<double>(*from);
      scale = policy == "not_larger" ? std::min(scale, ratio) : std::max(scale, ratio);
    }
    for (size_t i = 0; i < count; ++i) {
      const int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
      const double extent = std::floor(scale * static_cast<double>(*shape[axis].constant()) + 0.5);  // as ONNX rounds
      if (!(extent < 1e15)) return invalid_argument("its sizes are too large");
      full[axis] = static_cast<int64_t>(extent);
    }
  }
  *sizes = std::move(full);
  return Status::ok();
}

// An operand of length 0 means that it is not given, as older exporters write it.
bool is_given(const ir::Value* value) {
  return value != nullptr && !(value->rank() == 1 && value->shape[0] == DimExpr(0));
}

Status check_choice(std::string_view name, const std::string& value, std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return Status::ok();
  return unsupported(fmt::format("attribute '{}' is '{}', which is not supported", name, value));
}

}  // namespace

Status import_upsample_attributes(NodeContext& node) {
  const auto scales = node.get_floats("scales");
  if (!scales) return invalid_argument("attribute 'scales' is missing");
  return emit_old(node, *scales);
}

Status import_resize_scales(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(std::vector<double> scales, node.floats_operand(1, "scales"));
  return emit_old(node, std::move(scales));
}

Status import_resize(NodeContext& node) {
  ir::Value* x = node.input(0);
  const std::string mode = node.get_string("mode", "nearest");
  const std::string coordinates = node.get_string("coordinate_transformation_mode", "half_pixel");
  const std::string nearest = node.get_string("nearest_mode", "round_prefer_floor");
  const double extrapolation = node.get_float("extrapolation_value", 0), cubic = node.get_float("cubic_coeff_a", -0.75);
  const bool exclude = node.get_bool("exclude_outside", false);
  FW_RETURN_IF_ERROR(check_choice("mode", mode, {"nearest", "linear", "cubic"}));
  FW_RETURN_IF_ERROR(
      check_choice("coordinate_transformation_mode", coordinates,
                   {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"}));
  FW_RETURN_IF_ERROR(
      check_choice("nearest_mode", nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  std::optional<std::vector<int64_t>> axes;
  std::string policy = "stretch";
  if (node.opset() >= 18) {
    if (node.get_bool("antialias", false)) return unsupported("attribute 'antialias' is 1, which is not supported");
    axes = node.get_ints("axes");
    policy = node.get_string("keep_aspect_ratio_policy", policy);
    FW_RETURN_IF_ERROR(check_choice("keep_aspect_ratio_policy", policy, {"stretch", "not_larger", "not_smaller"}));
  }
  if (axes) {
    uint64_t seen = 0;
    for (int64_t& axis : *axes) {
      FW_ASSIGN_OR_RETURN(axis, node.normalized_axis(axis, x->rank(), "an axis of 'axes'"));
      if (seen >> axis & 1) return invalid_argument(fmt::format("axis {} is given twice", axis));
      seen |= uint64_t{1} << axis;
    }
  }
  Attributes attributes{{"mode", mode},
                        {"coordinate_transformation_mode", coordinates},
                        {"nearest_mode", nearest},
                        {"extrapolation_value", extrapolation},
                        {"cubic_coeff_a", cubic},
                        {"exclude_outside", int64_t{exclude}}};
  const bool by_scales = is_given(node.input(2)), by_sizes = is_given(node.input(3));
  if (by_scales == by_sizes) return invalid_argument("either scales or sizes must be given");
  if (by_scales) {
    FW_ASSIGN_OR_RETURN(std::vector<double> scales, node.floats_operand(2, "scales"));
    if (axes) {
      if (scales.size() != axes->size())
        return invalid_argument(fmt::format("it has {} scales for {} axes", scales.size(), axes->size()));
      std::vector<double> full(static_cast<size_t>(x->rank()), 1.0);
      for (size_t i = 0; i < scales.size(); ++i) full[(*axes)[i]] = scales[i];
      scales = std::move(full);
    }
    FW_RETURN_IF_ERROR(check_scales(node, scales));
    attributes.emplace("scales", std::move(scales));
  } else {
    FW_ASSIGN_OR_RETURN(SymShape sizes, node.dims_operand(3, "sizes"));
    FW_RETURN_IF_ERROR(resolve_sizes(node, axes, policy, &sizes));
    attributes.emplace("sizes", std::move(sizes));
  }
  return node.emit_outputs("Resize", {x}, std::move(attributes));
}

}  // namespace flywheel::onnx_import
