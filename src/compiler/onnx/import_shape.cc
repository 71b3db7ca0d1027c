// SPDX-License-Identifier: Apache-2.0
// Shape and Size. Called through import_list.inc.
#include <algorithm>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_shape(NodeContext& node) {
  const int64_t rank = node.input(0)->rank();
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = clamped(node.get_int("start", 0));
  const int64_t end = std::max(start, clamped(node.get_int("end", rank)));
  Attributes attributes;
  if (start != 0) attributes.emplace("start", start);
  if (end != rank) attributes.emplace("end", end);
  return node.emit_outputs("Shape", node.inputs(), std::move(attributes));
}

Status import_size(NodeContext& node) { return node.emit_outputs("Size", node.inputs()); }

}  // namespace flywheel::onnx_import
