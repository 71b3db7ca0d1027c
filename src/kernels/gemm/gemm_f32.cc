// SPDX-License-Identifier: Apache-2.0
// gemm in f32 on every ISA: B packed in panels, A read in place.
#include <fmt/format.h>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/implicit_gemm.h"
#include "kernels/tactic.h"

namespace flywheel::kernels {
namespace {

ContractionShape shape_of(const Problem& problem, const GemmParams& params) {
  ContractionShape shape;
  shape.columns = shape.in_columns = params.m;
  shape.channels = params.n;
  shape.depth = params.k;
  shape.input = {0, 0, 0, problem.inputs[0].strides[0], 1};
  shape.output = {0, 0, 0, problem.outputs[0].strides[0], 1};
  return shape;
}

class GemmF32 final : public BoundKernel {
 public:
  explicit GemmF32(ImplicitGemm gemm) : gemm_(std::move(gemm)) {}
  void launch(const Operands& operands, Worker& worker) const noexcept override {
    gemm_.run(static_cast<const float*>(operands.inputs[0]), reinterpret_cast<const float*>(operands.packed),
              static_cast<float*>(operands.outputs[0]), operands.inputs + 2, operands.workspace, worker);
  }
  size_t workspace_bytes() const override { return gemm_.workspace_bytes(); }

 private:
  ImplicitGemm gemm_;
};

template <Isa kIsa>
Status accepts(const Problem& problem, const Machine&) {
  FW_ASSIGN_OR_RETURN(GemmParams params, GemmParams::from(problem));
  FW_RETURN_IF_ERROR(Epilogue::from(problem, 2, kIsa).status());
  if (problem.constant.size() < 2 || !problem.constant[1]) {
    return unsupported("gemm packs B at build time, so B must be constant");
  }
  if (!ImplicitGemm::panels(shape_of(problem, params), kIsa).size()) {
    return unsupported(fmt::format("gemm's B of {}x{} is too large to pack", params.k, params.n));
  }
  return Status::ok();
}

template <Isa kIsa>
Result<AlignedBuffer> pack(const Problem& problem, std::span<const void* const> constants,
                           std::vector<bool>& consumed) {
  FW_ASSIGN_OR_RETURN(GemmParams params, GemmParams::from(problem));
  const Panels panels = ImplicitGemm::panels(shape_of(problem, params), kIsa);
  FW_ASSIGN_OR_RETURN(
      AlignedBuffer packed,
      AlignedBuffer::allocate(static_cast<size_t>(panels.size().value_or(0)) * sizeof(float), "packed gemm weights"));
  PanelSource source;
  source.data = static_cast<const float*>(constants[1]);
  source.column_stride = params.trans_b ? params.k : 1;
  source.depth = params.k;
  source.depth_stride = params.trans_b ? 1 : params.n;
  pack_panels(panels, source, 0, panels.count(), reinterpret_cast<float*>(packed.data()));
  consumed.assign(problem.inputs.size(), false);
  consumed[1] = true;
  return packed;
}

template <Isa kIsa>
Result<std::unique_ptr<BoundKernel>> bind(const Problem& problem, const Machine& machine, int workers) {
  FW_RETURN_IF_ERROR(accepts<kIsa>(problem, machine));
  FW_ASSIGN_OR_RETURN(GemmParams params, GemmParams::from(problem));
  FW_ASSIGN_OR_RETURN(Epilogue epilogue, Epilogue::from(problem, 2, kIsa));
  return std::unique_ptr<BoundKernel>(std::make_unique<GemmF32>(
      ImplicitGemm::create(shape_of(problem, params), std::move(epilogue), machine, kIsa, workers)));
}

template <Isa kIsa>
uint64_t packed_bytes(const Problem& problem) {
  const Result<GemmParams> params = GemmParams::from(problem);
  if (!params.is_ok()) return 0;
  return static_cast<uint64_t>(ImplicitGemm::panels(shape_of(problem, *params), kIsa).size().value_or(0)) *
         sizeof(float);
}

template <Isa kIsa>
constexpr Tactic tactic(const char* name) {
  return {name, Family::kGemm, kIsa, accepts<kIsa>, pack<kIsa>, bind<kIsa>, packed_bytes<kIsa>};
}

}  // namespace

#if defined(__x86_64__)
extern constinit const Tactic gemm_f32_avx512 = tactic<Isa::kAvx512>("gemm_f32_14x32_avx512");
extern constinit const Tactic gemm_f32_avx2 = tactic<Isa::kAvx2>("gemm_f32_6x16_avx2");
#endif
extern constinit const Tactic gemm_f32_portable = tactic<Isa::kPortable>("gemm_f32_6x8_portable");

}  // namespace flywheel::kernels
