// SPDX-License-Identifier: Apache-2.0
#include "runtime/bound_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace flywheel::runtime {
namespace {

// The lowest and one past the highest byte that a view touches, from its base, and where its element 0 is; false on
// overflow. An empty view touches nothing, wherever its offset points.
bool view_extent(const TensorDesc& desc, int64_t offset, int64_t& low_bytes, int64_t& high_bytes, int64_t& first_byte) {
  int64_t low = offset, high = offset;
  for (size_t d = 0; d < desc.dims.size(); ++d) {
    if (desc.dims[d] == 0) {
      low_bytes = high_bytes = first_byte = 0;
      return true;
    }
    int64_t reach = 0;
    if (__builtin_mul_overflow(desc.dims[d] - 1, desc.strides[d], &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
  }
  const auto size = static_cast<int64_t>(dtype_size(desc.dtype));
  return !__builtin_add_overflow(high, 1, &high) && !__builtin_mul_overflow(low, size, &low_bytes) &&
         !__builtin_mul_overflow(high, size, &high_bytes) && !__builtin_mul_overflow(offset, size, &first_byte);
}

// Of all operands of all steps. Below this, the whole team takes longer to start and to meet at barriers than it saves.
constexpr int64_t kLeastBytesForTeam = 64 << 10;

bool is_worth_a_team(const std::vector<kernels::Problem>& problems) {
  int64_t bytes = 0;
  for (const kernels::Problem& problem : problems) {
    for (const auto* descs : {&problem.inputs, &problem.outputs}) {
      for (const TensorDesc& desc : *descs) {
        const std::optional<int64_t> elements = checked_element_count(desc.dims);
        if (!elements || *elements >= kLeastBytesForTeam) return true;
        bytes += *elements * static_cast<int64_t>(dtype_size(desc.dtype));
      }
    }
    if (bytes >= kLeastBytesForTeam) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<BoundShape>> BoundShape::create(const EngineImpl& engine, std::vector<Dims> input_dims,
                                                       int team_size, std::byte* arena) {
  const engine::Plan& plan = engine.plan();
  FW_ASSIGN_OR_RETURN(std::vector<int64_t> values, engine::evaluate_exprs(plan, input_dims));
  std::unique_ptr<BoundShape> bound(new BoundShape());

  auto io_bytes = [](DType dtype, const Dims& dims) -> std::optional<int64_t> {
    std::optional<int64_t> count = checked_element_count(dims);
    int64_t bytes = 0;
    if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(dtype_size(dtype)), &bytes)) return std::nullopt;
    return bytes;
  };
  std::vector<int64_t> input_bytes, output_bytes;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    std::optional<int64_t> bytes = io_bytes(plan.inputs[i].dtype, input_dims[i]);
    if (!bytes) return invalid_argument(fmt::format("input '{}' is too large", plan.inputs[i].name));
    input_bytes.push_back(*bytes);
  }
  for (const engine::IoTensor& output : plan.outputs) {
    Dims dims;
    for (engine::ExprId id : output.dims) dims.push_back(values[static_cast<size_t>(id)]);
    std::optional<int64_t> bytes = io_bytes(output.dtype, dims);
    if (!bytes) {
      return invalid_argument(
          fmt::format("output '{}' would have shape {} for these inputs", output.name, dims_to_string(dims)));
    }
    output_bytes.push_back(*bytes);
    bound->output_dims_.push_back(std::move(dims));
  }
  bound->input_dims_ = std::move(input_dims);

  size_t pointer_count = 0;
  std::vector<kernels::Problem> problems;
  for (const engine::Step& step : plan.steps) {
    pointer_count += step.inputs.size() + step.outputs.size();
    Result<kernels::Problem> problem = engine::bind_problem(step, values);
    if (!problem.is_ok()) return problem.status().with_context(fmt::format("step '{}'", step.name));
    problems.push_back(std::move(problem).value());
  }
  bound->workers_ = is_worth_a_team(problems) ? team_size : 1;
  bound->pointers_.resize(pointer_count);
  bound->operands_.resize(plan.steps.size());
  bound->faults_ = std::make_unique<std::atomic<uint32_t>[]>(plan.steps.size());

  size_t next = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const engine::Step& step = plan.steps[s];
    auto failed = [&](const Status& status) { return status.with_context(fmt::format("step '{}'", step.name)); };
    kernels::Problem& problem = problems[s];
    kernels::Operands& operands = bound->operands_[s];

    auto place = [&](const engine::Operand& operand, const TensorDesc& desc) -> Status {
      const int64_t offset = operand.offset < 0 ? 0 : values[static_cast<size_t>(operand.offset)];
      int64_t low = 0, high = 0, offset_bytes = 0;
      if (!view_extent(desc, offset, low, high, offset_bytes)) return invalid_argument("an operand's extent overflows");
      int64_t limit = 0;
      std::byte* base = nullptr;
      const size_t slot = next++;
      switch (operand.space) {
        case engine::Space::kArena:
          base = arena + operand.base;
          limit = static_cast<int64_t>(operand.max_bytes);
          break;
        case engine::Space::kWeights:
          base = const_cast<std::byte*>(engine.weights().data()) + operand.base;
          limit = static_cast<int64_t>(operand.max_bytes);
          break;
        case engine::Space::kInput:
          limit = input_bytes[operand.base];
          bound->patches_.push_back({slot, false, operand.base, offset_bytes});
          break;
        case engine::Space::kOutput:
          limit = output_bytes[operand.base];
          bound->patches_.push_back({slot, true, operand.base, offset_bytes});
          break;
        case engine::Space::kNone: return Status::ok();
      }
      if (low < 0 || high > limit) {
        return corrupt(
            fmt::format("an operand of {} reaches bytes [{}, {}) of its {}: the engine is damaged, rebuild it",
                        desc.to_string(), low, high, limit));
      }
      bound->pointers_[slot] = base == nullptr ? nullptr : base + offset_bytes;
      return Status::ok();
    };
    const size_t first = next;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (Status status = place(step.inputs[i], problem.inputs[i]); !status.is_ok()) return failed(status);
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (Status status = place(step.outputs[i], problem.outputs[i]); !status.is_ok()) return failed(status);
    }
    operands.inputs = bound->pointers_.data() + first;
    operands.outputs = bound->pointers_.data() + first + step.inputs.size();
    operands.packed = step.packed_bytes > 0 ? engine.weights().data() + step.packed_offset : nullptr;
    operands.faults = &bound->faults_[s];
    const kernels::Tactic& tactic = engine.tactic(s);
    if (tactic.packed_bytes != nullptr) {
      FW_RETURN_IF_ERROR(tactic.accepts(problem, engine.machine()).with_context(fmt::format("step '{}'", step.name)));
      if (const uint64_t needed = tactic.packed_bytes(problem); step.packed_bytes < needed) {
        return failed(corrupt(
            fmt::format("its packed weights have {} bytes, its kernel reads {}: the engine is damaged, rebuild it",
                        step.packed_bytes, needed)));
      }
    }
    Result<std::unique_ptr<kernels::BoundKernel>> kernel = tactic.bind(problem, engine.machine(), bound->workers_);
    if (!kernel.is_ok()) return failed(kernel.status());
    bound->workspace_bytes_ = std::max(bound->workspace_bytes_, (*kernel)->workspace_bytes());
    bound->kernels_.push_back(std::move(*kernel));
    bound->output_descs_.push_back(std::move(problem.outputs));
  }
  return bound;
}

void BoundShape::set_io(std::span<const void* const> inputs, std::span<void* const> outputs, std::byte* workspace) {
  for (const Patch& patch : patches_) {
    auto* base = static_cast<std::byte*>(patch.output ? outputs[patch.index] : const_cast<void*>(inputs[patch.index]));
    pointers_[patch.pointer] = base + patch.offset_bytes;
  }
  for (kernels::Operands& operands : operands_) operands.workspace = workspace;
}

}  // namespace flywheel::runtime
