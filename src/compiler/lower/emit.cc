// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/emit.h"

#include <algorithm>
#include <utility>

#include "compiler/ops/op.h"

namespace flywheel::lower {

const View& Emitter::view(const ir::Value* value) const { return assignment_.views.at(value); }

StepDraft& Emitter::begin(const ir::Node& node, kernels::Family family, size_t outputs) {
  StepDraft& step = out_.steps.emplace_back();
  step.family = family;
  step.sources = node.sources;
  for (size_t i = 0; i < outputs; ++i) {
    const ir::Value* value = node.outputs()[i];
    step.outputs.push_back(view(value));
    step.output_types.push_back(value->dtype);
    step.output_names.push_back(value->name);
  }
  return step;
}

void Emitter::add_input(StepDraft& step, const ir::Value* value) { add_input(step, value, view(value)); }

void Emitter::add_input(StepDraft& step, const ir::Value* value, View view) {
  step.constants.push_back(view.storage->constant);
  step.inputs.push_back(std::move(view));
  step.input_types.push_back(value->dtype);
}

void Emitter::add_copy(const ir::Node& node, const View& from, const View& to, DType dtype,
                       std::string_view output_name) {
  StepDraft& step = out_.steps.emplace_back();
  step.family = kernels::Family::kCopy;
  step.sources = node.sources;
  step.inputs = {from};
  step.outputs = {to};
  step.input_types = step.output_types = {dtype};
  step.constants = {from.storage->constant};
  step.output_names = {std::string(output_name)};
}

View Emitter::as_rows(const ir::Node& node, const ir::Value* value, const SymShape& rows) {
  const View& whole = view(value);
  if (whole.dims.size() <= 1) {
    View out = whole;
    return out;
  }
  // [..., N] with leading dims equal to the product's rows, or all 1.
  const DimExpr one(1);
  const bool single =
      std::all_of(whole.dims.begin(), whole.dims.end() - 1, [&](const DimExpr& dim) { return dim == one; });
  SymShape full = rows;
  full.push_back(whole.dims.back());
  const bool same =
      single || (whole.dims.size() == full.size() && std::equal(rows.begin(), rows.end(), whole.dims.begin()));
  if (same) {
    if (std::optional<View> merged = collapse_leading(whole, 2)) return *merged;
  }
  View copy = temporary(value->dtype, full);
  add_copy(node, broadcast_view(whole, full), copy, value->dtype, value->name);
  return *collapse_leading(copy, 2);
}

View Emitter::temporary(DType dtype, SymShape dims) {
  auto storage = std::make_unique<Storage>();
  storage->dtype = dtype;
  storage->elements = product(dims);
  assignment_.storages.push_back(std::move(storage));
  return View::contiguous(assignment_.storages.back().get(), std::move(dims));
}

const ir::ConstTensor* Emitter::keep_constant(ir::ConstTensor tensor) {
  out_.own_constants.push_back(std::make_unique<ir::ConstTensor>(std::move(tensor)));
  return out_.own_constants.back().get();
}

View Emitter::constant_view(const ir::ConstTensor* tensor) {
  auto storage = std::make_unique<Storage>();
  storage->space = engine::Space::kWeights;
  storage->dtype = tensor->dtype;
  storage->constant = tensor;
  storage->elements = DimExpr(tensor->elements());
  assignment_.storages.push_back(std::move(storage));
  SymShape dims(tensor->dims.begin(), tensor->dims.end());
  return View::contiguous(assignment_.storages.back().get(), std::move(dims));
}

EmitFunction find_emit(const ir::Node& node) {
  static constexpr std::pair<std::string_view, EmitFunction> kTable[] = {
      {"Conv", emit_conv},
      {"ConvTranspose", emit_conv},
      {"Gemm", emit_gemm},
      {"MatMul", emit_matmul},
      {"Attention", emit_attention},
      {"MaxPool", emit_pool},
      {"AveragePool", emit_pool},
      {"Pointwise", emit_pointwise},
      {"Softmax", emit_softmax},
      {"LogSoftmax", emit_softmax},
      {"LayerNormalization", emit_norm},
      {"RMSNormalization", emit_norm},
      {"ReduceSum", emit_reduce},
      {"ReduceMean", emit_reduce},
      {"ReduceMax", emit_reduce},
      {"ReduceMin", emit_reduce},
      {"ReduceProd", emit_reduce},
      {"ReduceL1", emit_reduce},
      {"ReduceL2", emit_reduce},
      {"ReduceSumSquare", emit_reduce},
      {"ReduceLogSum", emit_reduce},
      {"ReduceLogSumExp", emit_reduce},
      {"ArgMax", emit_reduce},
      {"ArgMin", emit_reduce},
      {"Gather", emit_gather},
      {"GatherElements", emit_gather},
      {"GatherND", emit_gather},
      {"ScatterElements", emit_scatter},
      {"ScatterND", emit_scatter},
      {"TopK", emit_top_k},
      {"CumSum", emit_cumulative},
      {"Recurrent", emit_recurrent},
      {"Reshape", emit_move},
      {"Flatten", emit_move},
      {"Squeeze", emit_move},
      {"Unsqueeze", emit_move},
      {"Identity", emit_move},
      {"Dropout", emit_move},
      {"Transpose", emit_move},
      {"Slice", emit_move},
      {"Split", emit_move},
      {"Expand", emit_move},
      {"Concat", emit_concat},
      {"Pad", emit_pad},
      {"Tile", emit_tile},
      {"ConstantOfShape", emit_fill},
      {"Range", emit_fill},
      {"Resize", emit_resize},
  };
  for (const auto& [name, function] : kTable) {
    if (node.op() == name) return function;
  }
  const ops::Op* op = ops::find_op(node.op());
  return op != nullptr && op->instruction != nullptr && op->instruction(node) ? emit_pointwise : nullptr;
}

}  // namespace flywheel::lower
