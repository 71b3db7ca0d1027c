// SPDX-License-Identifier: Apache-2.0
// What the compiler knows of an operator: its operands, attributes and how types and shapes follow. Operators keep
// ONNX's names, semantics and newest attribute forms (the importer upgrades older opsets: e.g. Squeeze's axes come as
// operand 1 there and as attribute here). Each operator is an `extern const Op` in ops/<op>.cc, or in the file of its
// kind where they differ by a name (elementwise.cc, reduce.cc, pool.cc ...), and a row of op_list.inc.
//
// IR conventions that differ from ONNX:
//   - Constant-like parameters that ONNX passes as operands and that must be known at build time are attributes here,
//   as SymShape
//     where they may depend on dims: Reshape{shape}, Expand{shape}, Slice{starts, ends, axes, steps},
//     Squeeze/Unsqueeze{axes}, Reduce*{axes, keepdims}, Pad{pads, mode, value}, Tile{repeats}, Split{axis, split},
//     Resize{scales, sizes, ...}, ConstantOfShape{shape, value}, Range{start, step, count}, TopK{k}, Clip{min, max}
//     (floats). The importer puts the operand in both places only transiently: an importer node whose operand's
//     elements are known becomes the attribute form at once; unknown ones are unsupported ("data-dependent shape"),
//     listed with all other unsupported nodes. Reshape's and Expand's shapes are exact: 0 is an extent of 0
//     (Reshape{allowzero: 0} gives ONNX's "copy"), -1 is worked out. Pad's pads and Resize's scales or sizes cover
//     every dim of the operand, in its order, whatever the layout. Pad's may be negative. Slice's starts and ends are
//     ONNX's (negative from the end, clamped); slice.h gives them worked out.
//   - A data type as an attribute is its number or its name: Cast{to}, Range{dtype}, EyeLike{dtype}. Range's start and
//   step are SymShape of one
//     for integers, floats otherwise. Transpose{perm}, Squeeze/Unsqueeze{axes} must be there; no axes of a reduction:
//     all.
//   - ConvTranspose has explicit pads (auto_pad and output_shape are resolved by the importer).
//   - Elementwise operators all have `opcode` != nullopt and map to one kernels::Instruction; type promotion never
//   happens.
//   - Fused operators of our own: Pointwise{program} (any elementwise chain), Attention{scale, mask_kind, causal,
//   masked_rows_to_zero}
//     (operands as kernels/attention/attention.h, q k v as [B,H,S,D]), LayerNormalization{axis, epsilon} and
//     RMSNormalization, Gelu{approximate}, Conv/ConvTranspose/Gemm/MatMul with {program} and the epilogue's operands
//     after the main ones (Conv: x, w, e...; its bias is an epilogue operand once fuse_epilogue ran; before, ONNX's
//     operand 2 with no `program`).
//   - Gemm{transB, program?}: a [..., K] x constant [K,N] or [N,K] (transB) product: alpha, beta, transA are gone after
//     canonicalization. MatMul{program?, ...}: both operands computed.
//   - Conv, ConvTranspose, MaxPool, AveragePool, Resize{layout}: "NCHW" (default) or "NHWC"; weights stay OIHW in both.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"

namespace flywheel::ops {

struct Op {
  std::string_view name;
  int min_inputs = 1, max_inputs = 1;  // -1: any number
  int min_outputs = 1, max_outputs = 1;
  std::vector<std::string_view> attributes;  // all that are allowed
  // Sets dtype and shape (and `elements` where they follow) of every output from the inputs' and the attributes.
  // kInvalidArgument with what was found and expected.
  Status (*infer)(ir::Node& node) = nullptr;
  // Elementwise operators: the instruction that computes one element from operands 0.. (dst, a, b, c are to be filled
  // in).
  std::optional<kernels::Instruction> (*instruction)(const ir::Node& node) = nullptr;
  bool deterministic = true;  // false: must not be merged or folded
  // For operators without a kernel: puts simpler nodes before `node`, gives them its uses, output name and sources, and
  // erases it. kUnsupported, with the graph unchanged but for dead nodes, where this form cannot be done. Null: there
  // is a kernel.
  Status (*decompose)(ir::Graph& graph, ir::Node* node) = nullptr;
};

// Null for an unknown name.
const Op* find_op(std::string_view name);
std::span<const Op* const> all_ops();

// Checks operands and attributes against the Op, then runs its infer; the error names the node.
Status infer(ir::Node& node);
// add_node + attributes + infer.
Result<ir::Node*> add(ir::Graph& graph, std::string_view op, std::vector<ir::Value*> inputs,
                      std::map<std::string, ir::Attribute, std::less<>> attributes, ir::Node* before = nullptr,
                      int outputs = 1, std::vector<std::string> sources = {});
// Runs inference over the whole graph in order, e.g. after a pass changed types.
Status infer_graph(ir::Graph& graph);

}  // namespace flywheel::ops
