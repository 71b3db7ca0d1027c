// SPDX-License-Identifier: Apache-2.0
// Convolutions, products, attention and pools.
#include <fmt/format.h>

#include "compiler/lower/emit.h"
#include "kernels/attention/attention.h"
#include "kernels/pool/pool.h"

namespace flywheel::lower {
namespace {

using kernels::Family;

kernels::Program program_of(const ir::Node& node) {
  const auto* program = node.find<kernels::Program>("program");
  kernels::Program identity;
  identity.inputs = 1;
  return program == nullptr ? identity : *program;
}

// Without a program a third operand is ONNX's bias: the same as one that adds it.
kernels::Program program_with_bias(const ir::Node& node) {
  if (node.find<kernels::Program>("program") != nullptr || node.input(2) == nullptr) return program_of(node);
  kernels::Program add;
  add.inputs = 2;
  add.code.push_back({kernels::Opcode::kAdd, 2, 0, 1, 0, 0, 0});
  add.result = 2;
  return add;
}

// [N, W, C] as [N, 1, W, C]: one-dimensional windows run on the two-dimensional kernels.
View with_height(const View& view) {
  View out = view;
  out.dims.insert(out.dims.begin() + 1, DimExpr(1));
  out.strides.insert(out.strides.begin() + 1, DimExpr(0));
  return out;
}

// Stride, dilation, kernel and pads of a window operator over NHWC (or NWC), as the kernels want them.
struct Window {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1};
  DimExpr pad_begin[2], pad_end[2];
  bool one_dimensional = false;
};

Result<Window> window_of(const ir::Node& node, std::vector<int64_t> kernel) {
  if (node.string_or("layout", "NCHW") != "NHWC")
    return internal_error("its layout is NCHW: the pass to_nhwc has not run");
  const ir::Value& in = *node.input(0);
  const ir::Value& out = *node.output();
  if (in.rank() != 3 && in.rank() != 4) {
    return unsupported(fmt::format("windows over {} dims are not supported, only over 1 and 2", in.rank() - 2));
  }
  const auto spatial = static_cast<size_t>(in.rank() - 2), first = 2 - spatial;
  Window window;
  window.one_dimensional = spatial == 1;
  const auto strides = node.ints_or("strides", {}), dilations = node.ints_or("dilations", {}),
             pads = node.ints_or("pads", {});
  const std::string auto_pad = node.string_or("auto_pad", "NOTSET");
  for (size_t i = 0; i < spatial; ++i) {
    const size_t d = first + i;
    window.kernel[d] = kernel[i];
    if (!strides.empty()) window.stride[d] = strides[i];
    if (!dilations.empty()) window.dilation[d] = dilations[i];
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const DimExpr reach = (out.shape[1 + i] - DimExpr(1)) * DimExpr(window.stride[d]) +
                            DimExpr((kernel[i] - 1) * window.dilation[d] + 1) - in.shape[1 + i];
      const DimExpr total = DimExpr::max(reach, DimExpr(0));
      const DimExpr half = DimExpr::floor_div(total, DimExpr(2));
      window.pad_begin[d] = auto_pad == "SAME_UPPER" ? half : total - half;
      window.pad_end[d] = auto_pad == "SAME_UPPER" ? total - half : half;
    } else if (!pads.empty()) {
      window.pad_begin[d] = DimExpr(pads[i]);
      window.pad_end[d] = DimExpr(pads[spatial + i]);
    }
  }
  return window;
}

View spatial_view(const Window& window, const View& view) { return window.one_dimensional ? with_height(view) : view; }

}  // namespace

Status emit_conv(Emitter& emitter, const ir::Node& node) {
  const ir::Value& weights = *node.input(1);
  if (!weights.is_constant()) return unsupported("its weights are computed; only constant weights are supported");
  std::vector<int64_t> kernel = node.ints_or("kernel_shape", {});
  if (kernel.empty()) kernel.assign(weights.constant->dims.begin() + 2, weights.constant->dims.end());
  FW_ASSIGN_OR_RETURN(Window window, window_of(node, kernel));
  StepDraft& step = emitter.begin(node, node.op() == "Conv" ? Family::kConv : Family::kConvTranspose);
  step.outputs[0] = spatial_view(window, step.outputs[0]);
  emitter.add_input(step, node.input(0), spatial_view(window, emitter.view(node.input(0))));
  View weights_view = emitter.view(&weights);
  if (window.one_dimensional) {  // [K, C, S] as [K, C, 1, S]
    weights_view.dims.insert(weights_view.dims.begin() + 2, DimExpr(1));
    weights_view.strides = contiguous_strides(weights_view.dims);
  }
  emitter.add_input(step, &weights, weights_view);
  for (size_t i = 2; i < node.inputs().size(); ++i) {
    const ir::Value* operand = node.input(i);
    if (operand == nullptr) continue;
    View view = emitter.view(operand);
    emitter.add_input(step, operand, window.one_dimensional && view.dims.size() == 3 ? with_height(view) : view);
  }
  step.program = program_with_bias(node);
  step.ints = {window.kernel[0],    window.kernel[1],    window.stride[0],       window.stride[1],
               window.pad_begin[0], window.pad_begin[1], window.pad_end[0],      window.pad_end[1],
               window.dilation[0],  window.dilation[1],  node.int_or("group", 1)};
  return Status::ok();
}

Status emit_gemm(Emitter& emitter, const ir::Node& node) {
  const ir::Value& b = *node.input(1);
  if (!b.is_constant()) return internal_error("its second operand is not constant");
  const SymShape rows(node.output()->shape.begin(), node.output()->shape.end() - 1);
  std::vector<View> operands{emitter.as_rows(node, node.input(0), rows), emitter.view(&b)};
  for (size_t i = 2; i < node.inputs().size(); ++i) operands.push_back(emitter.as_rows(node, node.input(i), rows));
  std::optional<View> out = collapse_leading(emitter.view(node.output()), 2);
  const bool in_place = out.has_value();
  if (!in_place) out = collapse_leading(emitter.temporary(node.output()->dtype, node.output()->shape), 2);
  {
    StepDraft& step = emitter.begin(node, Family::kGemm);
    step.outputs[0] = *out;
    for (size_t i = 0; i < operands.size(); ++i) emitter.add_input(step, node.input(i), operands[i]);
    step.program = program_with_bias(node);
    step.ints = {node.int_or("transB", 0)};
  }
  if (!in_place) {
    emitter.add_copy(node, View::contiguous(out->storage, node.output()->shape), emitter.view(node.output()),
                     node.output()->dtype, node.output()->name);
  }
  return Status::ok();
}

Status emit_matmul(Emitter& emitter, const ir::Node& node) {
  View a = emitter.view(node.input(0)), b = emitter.view(node.input(1)), out = emitter.view(node.output());
  auto insert = [](View& view, size_t at) {
    view.dims.insert(view.dims.begin() + static_cast<long>(at), DimExpr(1));
    view.strides.insert(view.strides.begin() + static_cast<long>(at), DimExpr(0));
  };
  // A vector is a matrix of one row (left) or one column (right), and that dim is absent from the result.
  const bool a_vector = a.dims.size() == 1, b_vector = b.dims.size() == 1;
  if (a_vector) insert(a, 0);
  if (b_vector) insert(b, 1);
  if (a_vector) insert(out, out.dims.size() - (b_vector ? 0 : 1));
  if (b_vector) insert(out, out.dims.size());
  const size_t rank = std::max({a.dims.size(), b.dims.size(), out.dims.size()});
  for (View* view : {&a, &b, &out}) {
    while (view->dims.size() < rank) insert(*view, 0);
  }
  if ((a_vector || b_vector) && node.inputs().size() > 2) return internal_error("a vector product has an epilogue");
  StepDraft& step = emitter.begin(node, Family::kMatMul);
  step.outputs[0] = out;
  emitter.add_input(step, node.input(0), a);
  emitter.add_input(step, node.input(1), b);
  for (size_t i = 2; i < node.inputs().size(); ++i) emitter.add_input(step, node.input(i));
  step.program = program_of(node);
  return Status::ok();
}

Status emit_attention(Emitter& emitter, const ir::Node& node) {
  const int64_t mask_kind = node.int_or("mask_kind", 0);
  StepDraft& step = emitter.begin(node, Family::kAttention);
  for (size_t i = 0; i < 3; ++i) emitter.add_input(step, node.input(i));
  if (mask_kind != 0) emitter.add_input(step, node.input(3));
  step.ints = {mask_kind, node.int_or("causal", 0), node.int_or("masked_rows_to_zero", 0)};
  step.floats = {node.float_or("scale", 1.0)};
  return Status::ok();
}

Status emit_pool(Emitter& emitter, const ir::Node& node) {
  if (node.output(1) != nullptr && !node.output(1)->uses().empty()) return unsupported("its output Indices is used");
  FW_ASSIGN_OR_RETURN(Window window, window_of(node, node.ints_or("kernel_shape", {})));
  StepDraft& step = emitter.begin(node, Family::kPool);
  step.outputs[0] = spatial_view(window, step.outputs[0]);
  emitter.add_input(step, node.input(0), spatial_view(window, emitter.view(node.input(0))));
  const auto kind = node.op() == "MaxPool" ? kernels::PoolKind::kMax : kernels::PoolKind::kAverage;
  step.ints = {static_cast<int64_t>(kind), window.kernel[0],   window.kernel[1],
               window.stride[0],           window.stride[1],   window.pad_begin[0],
               window.pad_begin[1],        window.pad_end[0],  window.pad_end[1],
               window.dilation[0],         window.dilation[1], node.int_or("count_include_pad", 0)};
  return Status::ok();
}

}  // namespace flywheel::lower
