// SPDX-License-Identifier: Apache-2.0
// Turns one node into its steps. One function a group of operators; the table in emit.cc says which. Used by lower.cc.
#pragma once

#include <string_view>

#include "compiler/lower/assign_views.h"
#include "compiler/lower/lower.h"

namespace flywheel::lower {

class Emitter {
 public:
  Emitter(ViewAssignment& assignment, LoweredGraph& out) : assignment_(assignment), out_(out) {}

  const View& view(const ir::Value* value) const;
  // A new step that writes the node's outputs [0, outputs) where they are placed.
  StepDraft& begin(const ir::Node& node, kernels::Family family, size_t outputs = 1);
  void add_input(StepDraft& step, const ir::Value* value);
  void add_input(StepDraft& step, const ir::Value* value, View view);
  // A copy between views of equal dims.
  void add_copy(const ir::Node& node, const View& from, const View& to, DType dtype, std::string_view output_name);
  // The operand as [rows, columns]; copied to a temporary when its strides do not merge. `rows`: the product's leading
  // dims.
  View as_rows(const ir::Node& node, const ir::Value* value, const SymShape& rows);
  View temporary(DType dtype, SymShape dims);
  const ir::ConstTensor* keep_constant(ir::ConstTensor tensor);
  View constant_view(const ir::ConstTensor* tensor);
  ViewAssignment& assignment() { return assignment_; }

 private:
  ViewAssignment& assignment_;
  LoweredGraph& out_;
};

using EmitFunction = Status (*)(Emitter& emitter, const ir::Node& node);
// Null when the operator has no kernel. Elementwise operators all share one function.
EmitFunction find_emit(const ir::Node& node);

// The groups.
Status emit_conv(Emitter& emitter, const ir::Node& node);        // Conv, ConvTranspose
Status emit_gemm(Emitter& emitter, const ir::Node& node);        // Gemm
Status emit_matmul(Emitter& emitter, const ir::Node& node);      // MatMul
Status emit_attention(Emitter& emitter, const ir::Node& node);   // Attention
Status emit_pool(Emitter& emitter, const ir::Node& node);        // MaxPool, AveragePool
Status emit_pointwise(Emitter& emitter, const ir::Node& node);   // Pointwise and every elementwise operator
Status emit_softmax(Emitter& emitter, const ir::Node& node);     // Softmax, LogSoftmax
Status emit_norm(Emitter& emitter, const ir::Node& node);        // LayerNormalization, RMSNormalization
Status emit_reduce(Emitter& emitter, const ir::Node& node);      // Reduce*, ArgMax, ArgMin
Status emit_gather(Emitter& emitter, const ir::Node& node);      // Gather, GatherElements, GatherND
Status emit_scatter(Emitter& emitter, const ir::Node& node);     // ScatterElements, ScatterND
Status emit_top_k(Emitter& emitter, const ir::Node& node);       // TopK
Status emit_cumulative(Emitter& emitter, const ir::Node& node);  // CumSum
Status emit_recurrent(Emitter& emitter, const ir::Node& node);   // Recurrent
Status emit_move(Emitter& emitter,
                 const ir::Node& node);  // Reshape, Transpose, Slice, Split, Expand ... that are not views
Status emit_concat(Emitter& emitter, const ir::Node& node);  // Concat
Status emit_pad(Emitter& emitter, const ir::Node& node);     // Pad
Status emit_tile(Emitter& emitter, const ir::Node& node);    // Tile
Status emit_fill(Emitter& emitter, const ir::Node& node);    // ConstantOfShape, Range
Status emit_resize(Emitter& emitter, const ir::Node& node);  // Resize

}  // namespace flywheel::lower
