// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements: Transpose, Concat, Expand, Tile, DepthToSpace, SpaceToDepth. Called through
// import_list.inc.
#include <fmt/format.h>

#include "compiler/onnx/import_functions.h"

namespace flywheel::onnx_import {

Status import_transpose(NodeContext& node) {
  const int rank = node.input(0)->rank();
  auto perm = node.get_ints("perm");
  if (!perm) {
    perm.emplace();
    for (int i = rank; i-- > 0;) perm->push_back(i);
  }
  uint64_t seen = 0;
  for (int64_t axis : *perm) {
    if (axis < 0 || axis >= rank || (seen >> axis & 1))
      return invalid_argument("attribute 'perm' is not a permutation of the axes");
    seen |= uint64_t{1} << axis;
  }
  if (static_cast<int>(perm->size()) != rank) {
    return invalid_argument(fmt::format("attribute 'perm' has {} axes for an input with {} dims", perm->size(), rank));
  }
  return node.emit_outputs("Transpose", node.inputs(), {{"perm", *std::move(perm)}});
}

Status import_concat(NodeContext& node) {
  for (ir::Value* value : node.inputs()) {
    if (value == nullptr) return invalid_argument("one of its inputs is absent");
  }
  FW_ASSIGN_OR_RETURN(int64_t axis, node.normalized_axis(node.require_int("axis"), node.input(0)->rank()));
  if (node.input_count() == 1) {
    node.set_output(0, node.input(0));
    return Status::ok();
  }
  return node.emit_outputs("Concat", node.inputs(), {{"axis", axis}});
}

Status import_expand(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(SymShape shape, node.dims_operand(1, "shape"));
  return node.emit_outputs("Expand", {node.input(0)}, {{"shape", std::move(shape)}});
}

Status import_tile(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(SymShape repeats, node.dims_operand(1, "repeats"));
  return node.emit_outputs("Tile", {node.input(0)}, {{"repeats", std::move(repeats)}});
}

namespace {

// The image as [N, six dims], permuted, and reshaped to the result.
Status rearrange(NodeContext& node, SymShape apart, std::vector<int64_t> perm, SymShape result) {
  FW_ASSIGN_OR_RETURN(ir::Value * split, node.emit("Reshape", {node.input(0)}, {{"shape", std::move(apart)}}));
  FW_ASSIGN_OR_RETURN(ir::Value * moved, node.emit("Transpose", {split}, {{"perm", std::move(perm)}}));
  return node.emit_outputs("Reshape", {moved}, {{"shape", std::move(result)}});
}

struct Blocks {
  int64_t size;
  bool depth_first;  // DCR: the block's position is the slower part of the channel
};
Result<Blocks> blocks_of(NodeContext& node, bool has_mode) {
  const int64_t size = node.require_int("blocksize");
  const std::string mode = has_mode ? node.get_string("mode", "DCR") : "DCR";
  if (mode != "DCR" && mode != "CRD")
    return invalid_argument(fmt::format("attribute 'mode' is '{}'; DCR and CRD are defined", mode));
  if (node.input(0)->rank() != 4)
    return invalid_argument(fmt::format("its input has {} dims; 4 are expected", node.input(0)->rank()));
  if (size < 1 || size > (1 << 20)) return invalid_argument(fmt::format("attribute 'blocksize' is {}", size));
  return Blocks{size, mode == "DCR"};
}

bool divides(int64_t size, const DimExpr& dim) { return dim.constant().value_or(0) % size == 0; }

}  // namespace

Status import_depth_to_space(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(Blocks blocks, blocks_of(node, node.opset() >= 11));
  const SymShape& x = node.input(0)->shape;
  const DimExpr block(blocks.size);
  if (!divides(blocks.size * blocks.size, x[1])) {
    return invalid_argument(
        fmt::format("{} channels do not divide into blocks of {} x {}", x[1].to_string(), blocks.size, blocks.size));
  }
  const DimExpr depth = DimExpr::floor_div(x[1], block * block);
  SymShape result{x[0], depth, x[2] * block, x[3] * block};
  if (blocks.depth_first)
    return rearrange(node, {x[0], block, block, depth, x[2], x[3]}, {0, 3, 4, 1, 5, 2}, std::move(result));
  return rearrange(node, {x[0], depth, block, block, x[2], x[3]}, {0, 1, 4, 2, 5, 3}, std::move(result));
}

Status import_space_to_depth(NodeContext& node) {
  FW_ASSIGN_OR_RETURN(Blocks blocks, blocks_of(node, node.opset() >= 28));
  const SymShape& x = node.input(0)->shape;
  const DimExpr block(blocks.size);
  if (!divides(blocks.size, x[2]) || !divides(blocks.size, x[3])) {
    return invalid_argument(
        fmt::format("{} x {} does not divide into blocks of {}", x[2].to_string(), x[3].to_string(), blocks.size));
  }
  const DimExpr height = DimExpr::floor_div(x[2], block), width = DimExpr::floor_div(x[3], block);
  SymShape apart{x[0], x[1], height, block, width, block}, result{x[0], x[1] * block * block, height, width};
  const std::vector<int64_t> perm =
      blocks.depth_first ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4};
  return rearrange(node, std::move(apart), perm, std::move(result));
}

}  // namespace flywheel::onnx_import
