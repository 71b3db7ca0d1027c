// SPDX-License-Identifier: Apache-2.0
#include "kernels/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace flywheel::kernels {
namespace {

// Elements from the lowest to the highest address that the view touches, in bytes, must be countable in int64.
bool extent_fits(const TensorDesc& desc) {
  const int64_t size = static_cast<int64_t>(dtype_size(desc.dtype));
  const auto count = checked_element_count(desc.dims);
  int64_t bytes = 0, span = 1;
  if (!count || __builtin_mul_overflow(*count, size, &bytes)) return false;
  for (size_t i = 0; i < desc.dims.size(); ++i) {
    int64_t reach = 0;
    if (desc.strides[i] == INT64_MIN) return false;
    const int64_t stride = desc.strides[i] < 0 ? -desc.strides[i] : desc.strides[i];
    if (desc.dims[i] > 1 &&
        (__builtin_mul_overflow(desc.dims[i] - 1, stride, &reach) || __builtin_add_overflow(span, reach, &span))) {
      return false;
    }
  }
  return !__builtin_mul_overflow(span, size, &bytes);
}

Status check_desc(const TensorDesc& desc) {
  if (static_cast<int>(desc.dtype) >= kDTypeCount) {
    return invalid_argument(fmt::format("unknown element type {}", static_cast<int>(desc.dtype)));
  }
  if (desc.rank() > kMaxRank) {
    return invalid_argument(fmt::format("rank {} is above the largest, {}", desc.rank(), kMaxRank));
  }
  if (desc.strides.size() != desc.dims.size()) {
    return invalid_argument(fmt::format("{} strides for {} dims", desc.strides.size(), desc.dims.size()));
  }
  if (!extent_fits(desc)) {
    return invalid_argument(fmt::format("dims [{}] with strides [{}] are negative or exceed 2^63 bytes",
                                        fmt::join(desc.dims, ","), fmt::join(desc.strides, ",")));
  }
  return Status::ok();
}

}  // namespace

std::string_view family_name(Family family) {
  switch (family) {
    case Family::kConv: return "conv";
    case Family::kConvTranspose: return "conv_transpose";
    case Family::kGemm: return "gemm";
    case Family::kMatMul: return "matmul";
    case Family::kAttention: return "attention";
    case Family::kPool: return "pool";
    case Family::kPointwise: return "pointwise";
    case Family::kSoftmax: return "softmax";
    case Family::kLayerNorm: return "layer_norm";
    case Family::kReduce: return "reduce";
    case Family::kGather: return "gather";
    case Family::kCopy: return "copy";
    case Family::kResize: return "resize";
    case Family::kArange: return "arange";
    case Family::kScatter: return "scatter";
    case Family::kTopK: return "top_k";
    case Family::kCumulative: return "cumulative";
    case Family::kRecurrent: return "recurrent";
  }
  return "unknown";
}

std::string Problem::to_string() const {
  std::string text(family_name(family));
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += fmt::format("{}{}{}", i == 0 ? " " : ", ", i < constant.size() && constant[i] ? "const " : "",
                        inputs[i].to_string());
  }
  text += " ->";
  for (size_t i = 0; i < outputs.size(); ++i) text += (i == 0 ? " " : ", ") + outputs[i].to_string();
  if (!ints.empty()) text += fmt::format(" ints [{}]", fmt::join(ints, ","));
  if (!floats.empty()) text += fmt::format(" floats [{}]", fmt::join(floats, ","));
  if (!program.empty()) text += " program {" + program.to_string() + "}";
  return text;
}

Status check_operands(const Problem& problem, Family family, size_t min_inputs) {
  if (problem.family != family) {
    return invalid_argument(
        fmt::format("a {} problem was given to family {}", family_name(problem.family), family_name(family)));
  }
  if (problem.inputs.size() < min_inputs || problem.outputs.size() != 1) {
    return invalid_argument(fmt::format("{} has {} inputs and {} outputs; expected at least {} and exactly 1",
                                        family_name(family), problem.inputs.size(), problem.outputs.size(),
                                        min_inputs));
  }
  if (!problem.constant.empty() && problem.constant.size() != problem.inputs.size()) {
    return invalid_argument(fmt::format("{} says of {} inputs whether they are constant, but has {}",
                                        family_name(family), problem.constant.size(), problem.inputs.size()));
  }
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    FW_RETURN_IF_ERROR(check_desc(problem.inputs[i]).with_context(fmt::format("{} input {}", family_name(family), i)));
  }
  FW_RETURN_IF_ERROR(check_desc(problem.outputs[0]).with_context(fmt::format("{} output", family_name(family))));
  return problem.program.validate().with_context(fmt::format("{} program", family_name(family)));
}

Status check_epilogue(const Problem& problem, size_t main_operands) {
  const size_t expected = main_operands + (problem.program.inputs == 0 ? 0 : problem.program.inputs - 1);
  if (problem.inputs.size() != expected) {
    return invalid_argument(fmt::format("{} has {} inputs; its {} main operands and its program take {}",
                                        family_name(problem.family), problem.inputs.size(), main_operands, expected));
  }
  const Dims& out = problem.outputs[0].dims;
  for (size_t i = main_operands; i < problem.inputs.size(); ++i) {
    const Dims& in = problem.inputs[i].dims;
    bool fits = in.size() <= out.size();
    for (size_t d = 0; fits && d < in.size(); ++d) {
      fits = in[in.size() - 1 - d] == 1 || in[in.size() - 1 - d] == out[out.size() - 1 - d];
    }
    if (!fits) {
      return invalid_argument(fmt::format("{} epilogue operand {} of shape {} does not broadcast to the output's {}",
                                          family_name(problem.family), i, dims_to_string(in), dims_to_string(out)));
    }
  }
  return Status::ok();
}

}  // namespace flywheel::kernels
