// SPDX-License-Identifier: Apache-2.0
// What a recurrent problem asks for, checked.
#include <fmt/format.h>

#include <cmath>

#include "kernels/recurrent/recurrent.h"

namespace flywheel::kernels {

// So that no product of extents overflows in an engine that has been tampered with.
constexpr int64_t kMaxUnits = int64_t{1} << 24;

Result<RecurrentParams> RecurrentParams::from(const Problem& problem) {
  auto refuse = [](std::string_view why) { return invalid_argument(fmt::format("recurrent: {}", why)); };
  if (problem.family != Family::kRecurrent || problem.ints.size() != 11 || problem.floats.size() != 7 ||
      !problem.program.empty()) {
    return refuse("it needs 11 ints, 7 floats and no program");
  }
  if (problem.ints[0] < 0 || problem.ints[0] > 2) return refuse("the cell is unknown");
  RecurrentParams p;
  p.cell = static_cast<Cell>(problem.ints[0]);
  p.reverse = problem.ints[1] != 0;
  p.input_forget = problem.ints[7] != 0;
  int next = 2;
  int* const places[] = {&p.h0, &p.c0, &p.lengths, &p.peepholes, &p.candidate_bias};
  for (int i = 0; i < 5; ++i) {
    if (problem.ints[static_cast<size_t>(2 + i)] != 0) *places[i] = next++;
  }
  Function* const functions[] = {&p.f, &p.g, &p.h};
  for (size_t i = 0; i < 3; ++i) {
    if (problem.ints[8 + i] < 0 || problem.ints[8 + i] >= kActivations) return refuse("an activation is unknown");
    *functions[i] = {static_cast<Activation>(problem.ints[8 + i]), problem.floats[1 + 2 * i],
                     problem.floats[2 + 2 * i]};
  }
  p.clip = problem.floats[0];
  if (!(p.clip >= 0)) return refuse("the clip is negative");
  const size_t outputs = p.cell == Cell::kLstm ? 3 : 2;
  if (problem.inputs.size() != static_cast<size_t>(next) || problem.outputs.size() != outputs) {
    return refuse(fmt::format("it takes {} inputs and {} outputs, not {} and {}", next, outputs, problem.inputs.size(),
                              problem.outputs.size()));
  }
  const TensorDesc &pre = problem.inputs[0], &r = problem.inputs[1];
  if (pre.rank() != 3 || r.rank() != 2) return refuse("P has to have rank 3 and R rank 2");
  p.steps = pre.dims[0];
  p.batch = pre.dims[1];
  p.hidden = r.dims[1];
  if (p.hidden > kMaxUnits)
    return refuse(fmt::format("it has {} units; {} at most can be computed", p.hidden, kMaxUnits));
  const int64_t wide = p.gates() * p.hidden;
  auto check = [&](const TensorDesc& desc, const Dims& dims, DType dtype) {
    if (desc.dims == dims && desc.dtype == dtype && checked_element_count(dims) && desc.is_contiguous())
      return Status::ok();
    return refuse(
        fmt::format("{} is not contiguous {} of {}", desc.to_string(), dtype_name(dtype), dims_to_string(dims)));
  };
  FW_RETURN_IF_ERROR(check(pre, {p.steps, p.batch, wide}, DType::kFloat32));
  FW_RETURN_IF_ERROR(check(r, {wide, p.hidden}, DType::kFloat32));
  const Dims state = {p.batch, p.hidden};
  for (const auto& [place, dims] : {std::pair<int, Dims>{p.h0, state},
                                    {p.c0, state},
                                    {p.peepholes, Dims{3 * p.hidden}},
                                    {p.candidate_bias, Dims{p.hidden}}}) {
    if (place != 0) FW_RETURN_IF_ERROR(check(problem.inputs[static_cast<size_t>(place)], dims, DType::kFloat32));
  }
  if (p.lengths != 0)
    FW_RETURN_IF_ERROR(check(problem.inputs[static_cast<size_t>(p.lengths)], {p.batch}, DType::kInt32));
  if (p.cell != Cell::kLstm && (p.c0 != 0 || p.peepholes != 0 || p.input_forget))
    return refuse("a cell's state, peepholes and input_forget are LSTM's");
  if (p.cell != Cell::kGru && p.candidate_bias != 0) return refuse("a candidate bias is GRU's");
  FW_RETURN_IF_ERROR(check(problem.outputs[0], {p.steps, p.batch, p.hidden}, DType::kFloat32));
  for (size_t i = 1; i < outputs; ++i) FW_RETURN_IF_ERROR(check(problem.outputs[i], state, DType::kFloat32));
  return p;
}

}  // namespace flywheel::kernels
