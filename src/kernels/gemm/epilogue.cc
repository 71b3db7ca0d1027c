// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/epilogue.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "kernels/gemm/reference_epilogue.h"

namespace flywheel::kernels {
namespace {

// What the tile kernels can do in registers: acc (+ bias) (+ residual) (then clamp), the additions in any order.
// Returns false when the program is anything else.
bool fuse(const Program& program, const std::vector<View>& operands, Epilogue& out) {
  int current = 0;
  uint32_t inputs = program.inputs >= 32 ? ~0U : (1U << program.inputs) - 1;  // registers that still hold an input
  for (const Instruction& code : program.code) {
    if (out.clamp) return false;
    if (code.op == Opcode::kAdd) {
      if ((code.a == current) == (code.b == current)) return false;
      const int other = code.a == current ? code.b : code.a;
      if (other == 0 || (inputs >> other & 1) == 0) return false;
      const View& view = operands[other - 1];
      if (view.channel != 1) return false;
      const bool row_vector = view.image == 0 && view.row == 0 && view.column == 0;
      int& slot = row_vector && out.bias < 0 ? out.bias : out.residual;
      if (slot >= 0) return false;
      slot = other - 1;
    } else if ((code.op == Opcode::kRelu || code.op == Opcode::kClip) && code.a == current) {
      out.clamp = true;
      out.low = code.op == Opcode::kRelu ? 0.0F : static_cast<float>(code.x);
      out.high = code.op == Opcode::kRelu ? std::numeric_limits<float>::infinity() : static_cast<float>(code.y);
    } else {
      return false;
    }
    current = code.dst;
    inputs &= ~(1U << code.dst);
  }
  return program.result == current;
}

}  // namespace

View view_of(const TensorDesc& desc, int rank) {
  const auto strides = broadcast_strides(desc, rank);
  auto stride = [&](int from_end) { return rank >= from_end ? strides[rank - from_end] : 0; };
  return {0, stride(4), stride(3), stride(2), stride(1)};
}

Result<Epilogue> Epilogue::from(const Problem& problem, size_t main_operands, Isa isa) {
  const TensorDesc& out = problem.outputs[0];
  auto f32 = [&](DType dtype, std::string_view what) {
    if (dtype == DType::kFloat32) return Status::ok();
    return unsupported(fmt::format("{} is {}; this tactic computes in f32 only", what, dtype_name(dtype)));
  };
  FW_RETURN_IF_ERROR(f32(problem.inputs[0].dtype, "input 0"));
  FW_RETURN_IF_ERROR(f32(problem.inputs[1].dtype, "input 1"));
  FW_RETURN_IF_ERROR(f32(out.dtype, "the output"));
  if (!problem.program.code.empty()) FW_RETURN_IF_ERROR(f32(problem.program.compute, "the program's type"));
  Epilogue epilogue;
  for (size_t i = main_operands; i < problem.inputs.size(); ++i) {
    FW_RETURN_IF_ERROR(f32(problem.inputs[i].dtype, fmt::format("epilogue operand {}", i)));
    View view = view_of(problem.inputs[i], out.rank());
    // A single output channel has no stride; calling it 1 keeps such problems on the fast way.
    if (out.dims.back() == 1) view.channel = 1;
    epilogue.operands.push_back(view);
  }
  Epilogue fused = epilogue;
  if (fuse(problem.program, fused.operands, fused)) return fused;
  epilogue.fused = false;
  epilogue.program = problem.program;
  epilogue.run = tile_program(isa);
  return epilogue;
}

}  // namespace flywheel::kernels
