// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <fmt/format.h>

namespace flywheel::kernels {

Result<AttentionParams> AttentionParams::from(const Problem& problem) {
  auto refuse = [&](std::string_view why) { return invalid_argument(fmt::format("attention: {}", why)); };
  if (problem.ints.size() != 3 || problem.floats.size() != 1) return refuse("it needs 3 integers and 1 float");
  AttentionParams params;
  if (problem.ints[0] < 0 || problem.ints[0] > 2)
    return refuse(fmt::format("mask kind {} is unknown", problem.ints[0]));
  params.mask = static_cast<MaskKind>(problem.ints[0]);
  params.causal = problem.ints[1] != 0;
  params.masked_rows_to_zero = problem.ints[2] != 0;
  params.scale = static_cast<float>(problem.floats[0]);
  const size_t operands = params.mask == MaskKind::kNone ? 3 : 4;
  if (problem.inputs.size() != operands || problem.outputs.size() != 1) {
    return refuse(fmt::format("it takes {} inputs and 1 output, not {} and {}", operands, problem.inputs.size(),
                              problem.outputs.size()));
  }
  const TensorDesc &q = problem.inputs[0], &k = problem.inputs[1], &v = problem.inputs[2], &y = problem.outputs[0];
  for (const TensorDesc* desc : {&q, &k, &v, &y}) {
    if (desc->rank() != 4) return refuse(fmt::format("{} is not [batch, heads, rows, columns]", desc->to_string()));
    if (desc->dtype != DType::kFloat32) return refuse(fmt::format("{} is not f32", desc->to_string()));
    if (desc->dims[3] > 1 && desc->strides[3] != 1) {
      return refuse(fmt::format("the innermost stride of {} is not 1", desc->to_string()));
    }
  }
  params.batch = q.dims[0];
  params.heads = q.dims[1];
  params.queries = q.dims[2];
  params.head_dim = q.dims[3];
  params.keys = k.dims[2];
  params.value_dim = v.dims[3];
  if (k.dims != Dims{params.batch, params.heads, params.keys, params.head_dim} ||
      v.dims != Dims{params.batch, params.heads, params.keys, params.value_dim} ||
      y.dims != Dims{params.batch, params.heads, params.queries, params.value_dim}) {
    return refuse(fmt::format("the shapes of Q {}, K {}, V {} and Y {} do not fit", q.to_string(), k.to_string(),
                              v.to_string(), y.to_string()));
  }
  if (params.mask != MaskKind::kNone) {
    const TensorDesc& mask = problem.inputs[3];
    const DType wanted = params.mask == MaskKind::kAdd ? DType::kFloat32 : DType::kBool;
    if (mask.dtype != wanted) return refuse(fmt::format("its mask {} is not {}", mask.to_string(), dtype_name(wanted)));
    const Dims scores{params.batch, params.heads, params.queries, params.keys};
    if (mask.rank() > 4) return refuse(fmt::format("its mask {} has more than 4 dims", mask.to_string()));
    for (int i = 0; i < mask.rank(); ++i) {
      const int64_t dim = mask.dims[static_cast<size_t>(i)], score = scores[static_cast<size_t>(4 - mask.rank() + i)];
      if (dim != 1 && dim != score) {
        return refuse(fmt::format("its mask {} does not broadcast to {}", mask.to_string(), dims_to_string(scores)));
      }
    }
  }
  return params;
}

MaskStrides mask_strides(const Problem& problem) {
  MaskStrides out{};
  if (problem.inputs.size() < 4) return out;
  const TensorDesc& mask = problem.inputs[3];
  int64_t* const strides[4] = {&out.batch, &out.head, &out.query, &out.key};
  for (int i = 0; i < mask.rank(); ++i) {
    const auto d = static_cast<size_t>(i);
    if (mask.dims[d] != 1) *strides[4 - mask.rank() + i] = mask.strides[d];
  }
  return out;
}

}  // namespace flywheel::kernels
