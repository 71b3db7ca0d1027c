// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine_impl.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_set>

#include "engine/plan_table.h"
#include "runtime/bound_shape.h"
#include "runtime/execution_context.h"

namespace flywheel {

Result<std::shared_ptr<Engine>> Engine::load(const std::string& path, const LoadOptions& options) {
  FW_ASSIGN_OR_RETURN(std::shared_ptr<runtime::EngineImpl> engine,
                      runtime::EngineImpl::open(path, options.copy ? FileAccess::kCopy : FileAccess::kMap));
  return std::shared_ptr<Engine>(std::move(engine));
}

Status Engine::check(const std::string& path) {
  FW_ASSIGN_OR_RETURN(Machine machine, detect_machine());
  FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  FW_ASSIGN_OR_RETURN(engine::Header header, engine::read_header(file.bytes()));
  FW_RETURN_IF_ERROR(engine::check(header, machine));
  if (header.file_bytes != file.bytes().size()) {
    return corrupt(fmt::format("truncated engine: the file has {} bytes, its header says {}", file.bytes().size(),
                               header.file_bytes));
  }
  return Status::ok();
}

namespace {

std::optional<int> find_name(std::span<const TensorInfo> tensors, std::string_view name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> Engine::find_input(std::string_view name) const { return find_name(inputs(), name); }
std::optional<int> Engine::find_output(std::string_view name) const { return find_name(outputs(), name); }

namespace runtime {
namespace {

TensorInfo describe(const engine::Plan& plan, const engine::IoTensor& io) {
  TensorInfo info{io.name, io.dtype, {}, io.dim_texts, io.min, io.opt, io.max};
  for (engine::ExprId id : io.dims) {
    const engine::Expr& expr = plan.exprs[static_cast<size_t>(id)];
    const bool fixed = expr.size() == 1 && expr[0].op == DimExpr::Op::kConst;
    info.dims.push_back(fixed ? expr[0].value : -1);
  }
  return info;
}

}  // namespace

Result<std::shared_ptr<EngineImpl>> EngineImpl::open(const std::string& path, FileAccess access) {
  std::shared_ptr<EngineImpl> impl(new EngineImpl());
  FW_ASSIGN_OR_RETURN(impl->machine_, detect_machine());
  FW_ASSIGN_OR_RETURN(impl->file_, engine::read_engine(path, impl->machine_, access));
  impl->weights_ = impl->file_.weights;
  impl->plan_ = std::move(impl->file_.plan);
  FW_RETURN_IF_ERROR(impl->prepare().with_context(fmt::format("'{}'", path)));
  return impl;
}

Result<std::shared_ptr<EngineImpl>> EngineImpl::from_plan(engine::Plan plan, std::vector<std::byte> weights) {
  FW_RETURN_IF_ERROR(engine::check_plan(plan, weights.size()));
  std::shared_ptr<EngineImpl> impl(new EngineImpl());
  FW_ASSIGN_OR_RETURN(impl->machine_, detect_machine());
  FW_ASSIGN_OR_RETURN(impl->owned_weights_, AlignedBuffer::allocate(weights.size(), "an engine's weights"));
  if (!weights.empty()) std::memcpy(impl->owned_weights_.data(), weights.data(), weights.size());
  impl->weights_ = impl->owned_weights_.bytes();
  impl->plan_ = std::move(plan);
  FW_RETURN_IF_ERROR(impl->prepare());
  return impl;
}

Status EngineImpl::prepare() {
  for (const engine::Step& step : plan_.steps) {
    const kernels::Tactic* tactic = kernels::find_tactic(step.family, step.tactic);
    if (tactic == nullptr)
      return incompatible(fmt::format("this version has no kernel '{}': rebuild the engine", step.tactic));
    if (!machine_.has(tactic->isa)) {
      return incompatible(fmt::format("step '{}' uses kernel '{}', which needs {}; this machine has {}", step.name,
                                      step.tactic, isa_name(tactic->isa), isa_name(machine_.isa)));
    }
    tactics_.push_back(tactic);
    steps_.push_back({step.name, std::string(kernels::family_name(step.family)), step.tactic, step.sources,
                      step.problem, step.tuned_ms});
  }
  std::vector<Dims> max;
  for (const engine::IoTensor& input : plan_.inputs) {
    inputs_.push_back(describe(plan_, input));
    max.push_back(input.max);
  }
  for (const engine::IoTensor& output : plan_.outputs) {
    outputs_.push_back(describe(plan_, output));
    outputs_.back().min = outputs_.back().opt = outputs_.back().max = {};
  }
  memory_.weights_bytes = weights_.size();
  memory_.arena_bytes = plan_.arena_bytes;
  memory_.workspace_bytes = plan_.workspace_bytes;
  return Status::ok();
}

Status EngineImpl::check_weights_once() const {
  std::call_once(weights_checked_, [this] {
    if (!file_.file.bytes().empty()) weights_status_ = engine::check_weights(file_);
  });
  return weights_status_;
}

Result<std::unique_ptr<ExecutionContext>> EngineImpl::create_context(const ContextOptions& options) const {
  FW_RETURN_IF_ERROR(check_weights_once());
  auto self = std::static_pointer_cast<const EngineImpl>(shared_from_this());
  return ContextImpl::create(std::move(self), options);
}

}  // namespace runtime
}  // namespace flywheel
