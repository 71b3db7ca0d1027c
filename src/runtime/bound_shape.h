// SPDX-License-Identifier: Apache-2.0
// An engine's steps bound to one set of input shapes: kernels prepared, operand addresses laid out. Made by a context
// when it meets a new shape, kept in its cache. Owned by one context; not thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kernels/tactic.h"
#include "runtime/engine_impl.h"

namespace flywheel::runtime {

class BoundShape {
 public:
  // Evaluates all extents, checks that every operand stays inside its storage, prepares every kernel for workers().
  static Result<std::unique_ptr<BoundShape>> create(const EngineImpl& engine, std::vector<Dims> input_dims,
                                                    int team_size, std::byte* arena);

  const std::vector<Dims>& input_dims() const { return input_dims_; }
  const std::vector<Dims>& output_dims() const { return output_dims_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  // How many workers have to launch each step: the whole team, or one where there is little to do.
  int workers() const { return workers_; }

  // Puts the callers' arrays into the operand tables. REQUIRES: as many as the engine has.
  void set_io(std::span<const void* const> inputs, std::span<void* const> outputs, std::byte* workspace);

  size_t step_count() const { return kernels_.size(); }
  void launch(size_t step, Worker& worker) const noexcept { kernels_[step]->launch(operands_[step], worker); }
  // Which faults the last run set, by step; 0 = none. Clears it.
  uint32_t take_faults(size_t step) { return faults_[step].exchange(0, std::memory_order_relaxed); }
  const TensorDesc& output_desc(size_t step, size_t output) const { return output_descs_[step][output]; }
  const void* output_data(size_t step, size_t output) const { return operands_[step].outputs[output]; }

 private:
  BoundShape() = default;
  struct Patch {  // an entry of pointers_ that depends on the callers' arrays
    size_t pointer;
    bool output;
    size_t index;
    int64_t offset_bytes;
  };
  std::vector<Dims> input_dims_, output_dims_;
  std::vector<std::unique_ptr<kernels::BoundKernel>> kernels_;
  std::vector<void*> pointers_;  // all steps' inputs, then outputs, one after the other
  std::vector<kernels::Operands> operands_;
  std::vector<std::vector<TensorDesc>> output_descs_;
  std::vector<Patch> patches_;
  std::unique_ptr<std::atomic<uint32_t>[]> faults_;
  size_t workspace_bytes_ = 0;
  int workers_ = 1;
};

}  // namespace flywheel::runtime
