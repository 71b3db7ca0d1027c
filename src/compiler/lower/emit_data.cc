// SPDX-License-Identifier: Apache-2.0
// Elementwise programs, reductions, normalisations, gathers and everything that moves data.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compiler/lower/emit.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/op.h"
#include "kernels/copy/copy.h"
#include "kernels/gather/gather.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/reduce/reduce.h"
#include "kernels/resize/resize.h"
#include "kernels/scatter/scatter.h"

namespace flywheel::lower {
namespace {

using kernels::Family;

int64_t axis_of(const ir::Node& node, std::string_view name, int64_t fallback, int rank) {
  const int64_t axis = node.int_or(name, fallback);
  return axis < 0 ? axis + rank : axis;
}

// The one type that a program over these operands computes in: doubles if any is, else floats if any is, else integers.
DType compute_type(const ir::Node& node) {
  bool any_float = false;
  auto note = [&](const ir::Value* value) {
    any_float |= is_float(value->dtype);
    return value->dtype == DType::kFloat64;
  };
  bool any_double = false;
  for (const ir::Value* value : node.inputs()) any_double |= value != nullptr && note(value);
  for (const ir::Value* value : node.outputs()) any_double |= note(value);
  return any_double ? DType::kFloat64 : any_float ? DType::kFloat32 : DType::kInt64;
}

View scalar_broadcast(const View& view, const SymShape& dims) {
  View out = view;
  out.dims = dims;
  out.strides.assign(dims.size(), DimExpr(0));
  return out;
}

template <class Enum>
Result<int64_t> enum_value(const ir::Node& node, std::string_view attribute, std::string_view fallback,
                           std::initializer_list<std::pair<std::string_view, Enum>> names) {
  const std::string text = node.string_or(attribute, std::string(fallback));
  for (const auto& [name, value] : names) {
    if (text == name) return static_cast<int64_t>(value);
  }
  return unsupported(fmt::format("{} '{}' is not supported", attribute, text));
}

}  // namespace

Status emit_pointwise(Emitter& emitter, const ir::Node& node) {
  kernels::Program program;
  std::vector<const ir::Value*> operands;
  for (const ir::Value* value : node.inputs()) {
    if (value != nullptr) operands.push_back(value);
  }
  if (const auto* fused = node.find<kernels::Program>("program")) {
    program = *fused;
  } else {
    kernels::Instruction instruction = *ops::find_op(node.op())->instruction(node);
    const auto count = static_cast<uint8_t>(operands.size());
    instruction.a = 0;
    instruction.b = static_cast<uint8_t>(count > 1 ? 1 : 0);
    instruction.c = static_cast<uint8_t>(count > 2 ? 2 : 0);
    instruction.dst = count;
    program.compute = compute_type(node);
    program.inputs = count;
    program.code = {instruction};
    program.result = count;
  }
  StepDraft& step = emitter.begin(node, Family::kPointwise);
  for (const ir::Value* value : operands) emitter.add_input(step, value);
  step.program = std::move(program);
  return Status::ok();
}

Status emit_softmax(Emitter& emitter, const ir::Node& node) {
  StepDraft& step = emitter.begin(node, Family::kSoftmax);
  emitter.add_input(step, node.input(0));
  step.ints = {axis_of(node, "axis", -1, node.input(0)->rank()), node.op() == "LogSoftmax" ? 1 : 0};
  return Status::ok();
}

Status emit_norm(Emitter& emitter, const ir::Node& node) {
  for (size_t i = 1; i < node.outputs().size(); ++i) {
    if (!node.outputs()[i]->uses().empty() || node.outputs()[i]->is_graph_output())
      return unsupported("its output of statistics is used");
  }
  StepDraft& step = emitter.begin(node, Family::kLayerNorm);
  for (const ir::Value* value : node.inputs()) {
    if (value != nullptr) emitter.add_input(step, value);
  }
  step.ints = {axis_of(node, "axis", -1, node.input(0)->rank()), node.op() == "RMSNormalization" ? 1 : 0};
  step.floats = {node.float_or("epsilon", 1e-5)};
  return Status::ok();
}

Status emit_reduce(Emitter& emitter, const ir::Node& node) {
  using kernels::ReduceKind;
  static constexpr std::pair<std::string_view, ReduceKind> kKinds[] = {
      {"ReduceSum", ReduceKind::kSum},       {"ReduceMean", ReduceKind::kMean},
      {"ReduceMax", ReduceKind::kMax},       {"ReduceMin", ReduceKind::kMin},
      {"ReduceProd", ReduceKind::kProd},     {"ReduceL1", ReduceKind::kL1},
      {"ReduceL2", ReduceKind::kL2},         {"ReduceSumSquare", ReduceKind::kSumSquare},
      {"ReduceLogSum", ReduceKind::kLogSum}, {"ReduceLogSumExp", ReduceKind::kLogSumExp},
      {"ArgMax", ReduceKind::kArgMax},       {"ArgMin", ReduceKind::kArgMin}};
  const int rank = node.input(0)->rank();
  const bool arg = node.op().rfind("Arg", 0) == 0;
  std::vector<int64_t> axes = arg ? std::vector<int64_t>{node.int_or("axis", 0)} : node.ints_or("axes", {});
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  StepDraft& step = emitter.begin(node, Family::kReduce);
  emitter.add_input(step, node.input(0));
  for (const auto& [name, kind] : kKinds) {
    if (node.op() == name)
      step.ints = {static_cast<int64_t>(kind), node.int_or("keepdims", 1), node.int_or("select_last_index", 0)};
  }
  for (int64_t axis : axes) step.ints.emplace_back(axis);
  return Status::ok();
}

Status emit_gather(Emitter& emitter, const ir::Node& node) {
  using kernels::GatherKind;
  const GatherKind kind = node.op() == "Gather"           ? GatherKind::kGather
                          : node.op() == "GatherElements" ? GatherKind::kElements
                                                          : GatherKind::kNd;
  StepDraft& step = emitter.begin(node, Family::kGather);
  emitter.add_input(step, node.input(0));
  emitter.add_input(step, node.input(1));
  step.ints = {static_cast<int64_t>(kind), axis_of(node, "axis", 0, node.input(0)->rank()),
               node.int_or("batch_dims", 0)};
  return Status::ok();
}

Status emit_scatter(Emitter& emitter, const ir::Node& node) {
  using kernels::ScatterKind;
  using kernels::ScatterReduction;
  FW_ASSIGN_OR_RETURN(int64_t reduction, enum_value<ScatterReduction>(node, "reduction", "none",
                                                                      {{"none", ScatterReduction::kNone},
                                                                       {"add", ScatterReduction::kAdd},
                                                                       {"mul", ScatterReduction::kMul},
                                                                       {"max", ScatterReduction::kMax},
                                                                       {"min", ScatterReduction::kMin}}));
  const ScatterKind kind = node.op() == "ScatterND" ? ScatterKind::kNd : ScatterKind::kElements;
  StepDraft& step = emitter.begin(node, Family::kScatter);
  for (const ir::Value* value : node.inputs()) emitter.add_input(step, value);
  step.ints = {static_cast<int64_t>(kind), axis_of(node, "axis", 0, node.input(0)->rank()), reduction};
  return Status::ok();
}

Status emit_top_k(Emitter& emitter, const ir::Node& node) {
  StepDraft& step = emitter.begin(node, Family::kTopK, 2);
  emitter.add_input(step, node.input(0));
  step.ints = {axis_of(node, "axis", -1, node.input(0)->rank()), node.int_or("largest", 1)};
  return Status::ok();
}

Status emit_cumulative(Emitter& emitter, const ir::Node& node) {
  StepDraft& step = emitter.begin(node, Family::kCumulative);
  emitter.add_input(step, node.input(0));
  step.ints = {axis_of(node, "axis", 0, node.input(0)->rank()), node.int_or("exclusive", 0), node.int_or("reverse", 0)};
  return Status::ok();
}

Status emit_recurrent(Emitter& emitter, const ir::Node& node) {
  using kernels::Cell;
  FW_ASSIGN_OR_RETURN(
      int64_t cell,
      enum_value<Cell>(node, "cell", "", {{"RNN", Cell::kRnn}, {"GRU", Cell::kGru}, {"LSTM", Cell::kLstm}}));
  const std::vector<int64_t> kinds = node.ints_or("activations", {});
  const auto *alphas = node.find<std::vector<double>>("activation_alpha"),
             *betas = node.find<std::vector<double>>("activation_beta");
  if (kinds.size() != 3 || alphas == nullptr || alphas->size() != 3 || betas == nullptr || betas->size() != 3)
    return internal_error("its activations are not three with their parameters");
  StepDraft& step = emitter.begin(node, Family::kRecurrent, node.outputs().size());
  step.ints = {cell, node.int_or("reverse", 0)};
  for (size_t i = 0; i < 7; ++i) {
    const ir::Value* value = i < node.inputs().size() ? node.input(i) : nullptr;
    if (value != nullptr) emitter.add_input(step, value);
    if (i >= 2) step.ints.emplace_back(value != nullptr ? 1 : 0);
  }
  step.ints.emplace_back(node.int_or("input_forget", 0));
  for (int64_t kind : kinds) step.ints.emplace_back(kind);
  step.floats = {node.float_or("clip", 0)};
  for (size_t i = 0; i < 3; ++i) {
    step.floats.push_back((*alphas)[i]);
    step.floats.push_back((*betas)[i]);
  }
  return Status::ok();
}

Status emit_move(Emitter& emitter, const ir::Node& node) {
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const ir::Value* value = node.outputs()[i];
    if (emitter.assignment().elided_outputs.contains(value)) continue;
    const View &in = emitter.view(node.input(0)), &out = emitter.view(value);
    if (std::optional<View> from = derived_view(node, i, in)) {
      emitter.add_copy(node, *from, out, value->dtype, value->name);
      continue;
    }
    // A reshape of something that does not lie in order: copy in the operand's dims, or through a temporary that lies
    // in order.
    if (std::optional<View> to = reshape_view(out, in.dims)) {
      emitter.add_copy(node, in, *to, value->dtype, value->name);
      continue;
    }
    const View ordered = emitter.temporary(value->dtype, in.dims);
    emitter.add_copy(node, in, ordered, value->dtype, node.input(0)->name);
    emitter.add_copy(node, *reshape_view(ordered, value->shape), out, value->dtype, value->name);
  }
  return Status::ok();
}

Status emit_concat(Emitter& emitter, const ir::Node& node) {
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    auto copy = emitter.assignment().concat_copies.find({&node, i});
    if (copy == emitter.assignment().concat_copies.end()) continue;
    emitter.add_copy(node, emitter.view(node.input(i)), copy->second, node.output()->dtype, node.input(i)->name);
  }
  return Status::ok();
}

Status emit_pad(Emitter& emitter, const ir::Node& node) {
  const std::optional<SymShape> pads = ops::dims_attribute(node, "pads");
  const auto rank = static_cast<size_t>(node.input(0)->rank());
  if (!pads || pads->size() != 2 * rank) return internal_error("its pads are missing");
  using kernels::PadMode;
  FW_ASSIGN_OR_RETURN(int64_t mode, enum_value<PadMode>(node, "mode", "constant",
                                                        {{"constant", PadMode::kConstant},
                                                         {"edge", PadMode::kEdge},
                                                         {"reflect", PadMode::kReflect},
                                                         {"wrap", PadMode::kWrap}}));
  int64_t bits = 0;
  const double value = node.float_or("value", 0.0);
  switch (node.output()->dtype) {
    case DType::kFloat32: {
      const auto narrow = static_cast<float>(value);
      std::memcpy(&bits, &narrow, sizeof narrow);
      break;
    }
    case DType::kFloat64: std::memcpy(&bits, &value, sizeof value); break;
    case DType::kFloat16:
    case DType::kBFloat16:
      if (value != 0) return unsupported("padding 16-bit floats with anything but 0 is not supported");
      break;
    default:
      // The importer gives 64-bit integers as such: a double would lose those beyond 2^53.
      if (const auto* integer = node.find<int64_t>("value")) {
        bits = *integer;
      } else if (value >= -0x1p63 && value < 0x1p63) {
        bits = static_cast<int64_t>(value);
      } else {
        return unsupported(fmt::format("its value {} is not an integer of 64 bits", value));
      }
  }
  StepDraft& step = emitter.begin(node, Family::kCopy);
  emitter.add_input(step, node.input(0));
  step.ints = {mode, bits};
  step.ints.insert(step.ints.end(), pads->begin(), pads->end());
  return Status::ok();
}

Status emit_tile(Emitter& emitter, const ir::Node& node) {
  const std::optional<SymShape> repeats = ops::dims_attribute(node, "repeats");
  const View &in = emitter.view(node.input(0)), &out = emitter.view(node.output());
  if (!repeats || repeats->size() != in.dims.size()) return internal_error("its repeats are missing");
  // [r0, d0, r1, d1, ...] with stride 0 on every r: the result in row-major order.
  View from{in.storage, in.offset, {}, {}};
  for (size_t i = 0; i < in.dims.size(); ++i) {
    if ((*repeats)[i] != DimExpr(1)) {
      from.dims.push_back((*repeats)[i]);
      from.strides.emplace_back(0);
    }
    from.dims.push_back(in.dims[i]);
    from.strides.push_back(in.strides[i]);
  }
  if (from.dims.size() > kMaxRank)
    return unsupported(fmt::format("it repeats too many dims of a tensor of rank {}", in.dims.size()));
  std::optional<View> to = reshape_view(out, from.dims);
  if (to) {
    emitter.add_copy(node, from, *to, node.output()->dtype, node.output()->name);
  } else {
    const View ordered = emitter.temporary(node.output()->dtype, node.output()->shape);
    emitter.add_copy(node, from, *reshape_view(ordered, from.dims), node.output()->dtype, node.output()->name);
    emitter.add_copy(node, ordered, out, node.output()->dtype, node.output()->name);
  }
  return Status::ok();
}

Status emit_fill(Emitter& emitter, const ir::Node& node) {
  if (node.op() == "ConstantOfShape") {
    const auto* value = node.find<ir::ConstTensor>("value");
    const ir::ConstTensor scalar = value != nullptr ? *value : ir::ConstTensor::zeros(node.output()->dtype, {1});
    const View from = scalar_broadcast(emitter.constant_view(emitter.keep_constant(scalar)), node.output()->shape);
    emitter.add_copy(node, from, emitter.view(node.output()), node.output()->dtype, node.output()->name);
    return Status::ok();
  }
  StepDraft& step = emitter.begin(node, Family::kArange);
  if (is_float(node.output()->dtype)) {
    step.floats = {node.float_or("start", 0), node.float_or("step", 1)};
    return Status::ok();
  }
  const std::optional<SymShape> start = ops::dims_attribute(node, "start"),
                                increment = ops::dims_attribute(node, "step");
  step.ints = {start && start->size() == 1 ? start->front() : DimExpr(node.int_or("start", 0)),
               increment && increment->size() == 1 ? increment->front() : DimExpr(node.int_or("step", 1))};
  return Status::ok();
}

Status emit_resize(Emitter& emitter, const ir::Node& node) {
  using namespace kernels;
  if (node.string_or("layout", "NCHW") != "NHWC")
    return internal_error("its layout is NCHW: the pass to_nhwc has not run");
  if (node.input(0)->rank() != 4) return unsupported("only images (rank 4) can be resized");
  FW_ASSIGN_OR_RETURN(int64_t mode, enum_value<ResizeMode>(node, "mode", "nearest",
                                                           {{"nearest", ResizeMode::kNearest},
                                                            {"linear", ResizeMode::kLinear},
                                                            {"cubic", ResizeMode::kCubic}}));
  FW_ASSIGN_OR_RETURN(int64_t coordinates, enum_value<ResizeCoordinates>(
                                               node, "coordinate_transformation_mode", "half_pixel",
                                               {{"half_pixel", ResizeCoordinates::kHalfPixel},
                                                {"asymmetric", ResizeCoordinates::kAsymmetric},
                                                {"align_corners", ResizeCoordinates::kAlignCorners},
                                                {"pytorch_half_pixel", ResizeCoordinates::kPytorchHalfPixel},
                                                {"half_pixel_symmetric", ResizeCoordinates::kHalfPixelSymmetric}}));
  FW_ASSIGN_OR_RETURN(int64_t rounding,
                      enum_value<NearestRounding>(node, "nearest_mode", "round_prefer_floor",
                                                  {{"round_prefer_floor", NearestRounding::kRoundPreferFloor},
                                                   {"round_prefer_ceil", NearestRounding::kRoundPreferCeil},
                                                   {"floor", NearestRounding::kFloor},
                                                   {"ceil", NearestRounding::kCeil}}));
  std::vector<double> scales;
  if (const auto* given = node.find<std::vector<double>>("scales")) scales = *given;
  if (!scales.empty() && scales.size() != 4) return internal_error("its scales do not match its rank");
  if (scales.empty()) {
    for (size_t d : {1, 2}) {
      const auto in = node.input(0)->shape[d].constant(), out = node.output()->shape[d].constant();
      // 0: as the extents turn out to be.
      scales.push_back(in && out && *in > 0 ? static_cast<double>(*out) / static_cast<double>(*in) : 0);
    }
  } else {
    scales = {scales[1], scales[2]};
  }
  StepDraft& step = emitter.begin(node, Family::kResize);
  emitter.add_input(step, node.input(0));
  step.ints = {mode, coordinates, rounding, node.int_or("exclude_outside", 0)};
  step.floats = {scales[0], scales[1], node.float_or("cubic_coeff_a", -0.75),
                 node.float_or("extrapolation_value", 0.0)};
  return Status::ok();
}

}  // namespace flywheel::lower
