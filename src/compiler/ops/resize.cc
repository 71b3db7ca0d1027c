// SPDX-License-Identifier: Apache-2.0
// Resize{scales | sizes, mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside,
// extrapolation_value, layout} `scales` and `sizes` have an entry for each dim of x, in x's order (they move with the
// layout). Scales alone: an output extent is floor(scale * extent) in float, as ONNX Runtime computes it; both: sizes
// give the extents, scales the coordinates.
#include <fmt/format.h>

#include <cmath>

#include "compiler/ops/infer.h"

namespace flywheel::ops {
namespace {

// floor(extent * scale); for a symbolic extent the scale must be a simple ratio.
Result<DimExpr> scaled(const DimExpr& extent, double scale) {
  if (!(scale > 0) || !(scale < 1e6))
    return invalid_argument(fmt::format("attribute scales has {}; expected more than 0 and less than 1e6", scale));
  if (scale == 1) return extent;
  float factor = static_cast<float>(scale);
  if (std::optional<int64_t> n = extent.constant()) {
    float result = std::floor(static_cast<float>(*n) * factor);
    if (!(result < 0x1p40F)) return invalid_argument(fmt::format("an extent of {} times {} is too large", *n, scale));
    return DimExpr(static_cast<int64_t>(result));
  }
  for (int64_t q = 1; q <= 64; ++q) {
    int64_t p = std::llround(scale * static_cast<double>(q));
    if (p > 0 && static_cast<float>(static_cast<double>(p) / static_cast<double>(q)) == factor) {
      return DimExpr::floor_div(extent * DimExpr(p), q);
    }
  }
  return unsupported(fmt::format("the extent {} times {} is no simple ratio; fix that dim or export with sizes",
                                 extent.to_string(), scale));
}

Status infer_resize(ir::Node& node) {
  const ir::Value& x = *node.input(0);
  const auto* scales = node.find<std::vector<double>>("scales");
  std::optional<SymShape> sizes = dims_attribute(node, "sizes");
  for (size_t count : {scales ? scales->size() : x.shape.size(), sizes ? sizes->size() : x.shape.size()}) {
    if (count != x.shape.size()) {
      return invalid_argument(
          fmt::format("its scales or sizes have {} entries for shape {}", count, sym_shape_to_string(x.shape)));
    }
  }
  std::string layout = node.string_or("layout", "NCHW");
  if (layout != "NCHW" && layout != "NHWC")
    return invalid_argument(fmt::format("attribute layout is \"{}\"; expected NCHW or NHWC", layout));
  if (!sizes && !scales) return invalid_argument("attribute scales or sizes is missing");
  SymShape shape;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (sizes) {
      if ((*sizes)[i].upper_bound().value_or(0) < 0)
        return invalid_argument(fmt::format("attribute sizes has {}", (*sizes)[i].to_string()));
      shape.push_back((*sizes)[i]);
    } else {
      FW_ASSIGN_OR_RETURN(DimExpr extent, scaled(x.shape[i], (*scales)[i]));
      shape.push_back(std::move(extent));
    }
  }
  set_output(node, 0, x.dtype, std::move(shape));
  return Status::ok();
}

}  // namespace

extern const Op kResize{"Resize",
                        1,
                        1,
                        1,
                        1,
                        {"scales", "sizes", "mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a",
                         "exclude_outside", "extrapolation_value", "layout"},
                        infer_resize};

}  // namespace flywheel::ops
