// SPDX-License-Identifier: Apache-2.0
// The runtime's Engine: a mapped or copied engine file, its plan, and the tactics that its steps name. Immutable after
// open(); any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "engine/engine_file.h"
#include "flywheel/engine.h"
#include "kernels/tactic.h"

namespace flywheel::runtime {

class EngineImpl final : public Engine {
 public:
  static Result<std::shared_ptr<EngineImpl>> open(const std::string& path, FileAccess access = FileAccess::kMap);
  // From a plan and weights in memory: constant folding, calibration, tests. `weights` is kept.
  static Result<std::shared_ptr<EngineImpl>> from_plan(engine::Plan plan, std::vector<std::byte> weights);

  std::string_view name() const override { return plan_.name; }
  std::span<const TensorInfo> inputs() const override { return inputs_; }
  std::span<const TensorInfo> outputs() const override { return outputs_; }
  std::span<const StepInfo> steps() const override { return steps_; }
  EngineMemory memory() const override { return memory_; }
  std::span<const std::pair<int64_t, double>> latency_curve() const override { return plan_.latency_curve; }
  uint64_t model_hash() const override { return plan_.model_hash; }
  std::string_view build_record() const override { return plan_.build_record; }
  Result<std::unique_ptr<ExecutionContext>> create_context(const ContextOptions& options) const override;

  const engine::Plan& plan() const { return plan_; }
  std::span<const std::byte> weights() const { return weights_; }
  const Machine& machine() const { return machine_; }
  const kernels::Tactic& tactic(size_t step) const { return *tactics_[step]; }

 private:
  EngineImpl() = default;
  Status prepare();
  Status check_weights_once() const;

  Machine machine_;
  engine::EngineFile file_;  // its plan moves to plan_; empty when made from a plan
  AlignedBuffer owned_weights_;
  std::span<const std::byte> weights_;
  engine::Plan plan_;
  std::vector<const kernels::Tactic*> tactics_;  // one a step
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<StepInfo> steps_;
  EngineMemory memory_;
  mutable std::once_flag weights_checked_;
  mutable Status weights_status_;
};

}  // namespace flywheel::runtime
