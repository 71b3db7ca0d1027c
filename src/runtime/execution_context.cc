// SPDX-License-Identifier: Apache-2.0
#include "runtime/execution_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>

namespace flywheel::runtime {
namespace {

// Enough for every batch size of a server's model and a few lengths; a bound shape costs some 100 KB for a large model.
constexpr size_t kCachedShapes = 64;

// Copies a strided view into a contiguous array, element by element: observation only.
void gather_contiguous(const TensorDesc& desc, const std::byte* data, std::byte* out) {
  const size_t size = dtype_size(desc.dtype);
  const int64_t count = desc.elements();
  Dims index(desc.dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * desc.strides[d];
    std::memcpy(out + static_cast<size_t>(i) * size, data + offset * static_cast<int64_t>(size), size);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < desc.dims[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

Result<std::unique_ptr<ExecutionContext>> ContextImpl::create(std::shared_ptr<const EngineImpl> engine,
                                                              const ContextOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return invalid_argument(fmt::format("a context needs 0 (all cores) to 1024 threads, not {}", options.threads));
  }
  const int threads = options.threads == 0 ? engine->machine().cores : options.threads;
  std::unique_ptr<ContextImpl> context(new ContextImpl(engine));
  FW_ASSIGN_OR_RETURN(context->team_, ThreadTeam::create(threads));
  FW_ASSIGN_OR_RETURN(context->arena_,
                      AlignedBuffer::allocate(engine->plan().arena_bytes, "the arena of an execution context"));
  std::vector<Dims> max, opt;
  for (const engine::IoTensor& input : engine->plan().inputs) {
    max.push_back(input.max);
    opt.push_back(input.opt);
  }
  FW_ASSIGN_OR_RETURN(std::unique_ptr<BoundShape> largest,
                      BoundShape::create(*engine, max, threads, context->arena_.data()));
  FW_ASSIGN_OR_RETURN(context->workspace_,
                      AlignedBuffer::allocate(largest->workspace_bytes(), "the workspace of an execution context"));
  context->cache_.push_back(std::move(largest));
  context->wanted_ = std::move(opt);
  context->step_ms_.resize(engine->plan().steps.size());
  return std::unique_ptr<ExecutionContext>(std::move(context));
}

ContextImpl::~ContextImpl() {
  if (runner_.joinable()) {
    {
      std::lock_guard lock(runner_mutex_);
      runner_stop_ = true;
    }
    runner_wake_.notify_all();
    runner_.join();
  }
}

Status ContextImpl::check_idle() const {
  if (!runner_busy_) return Status::ok();
  return unavailable("this context has a run in flight: wait() for it, or create another context");
}

Status ContextImpl::set_shape(int input, std::span<const int64_t> dims) {
  FW_RETURN_IF_ERROR(check_idle());
  if (input < 0 || static_cast<size_t>(input) >= wanted_.size()) {
    return invalid_argument(fmt::format("input {} does not exist: the engine has {}", input, wanted_.size()));
  }
  const engine::IoTensor& info = engine_->plan().inputs[static_cast<size_t>(input)];
  if (dims.size() != info.min.size()) {
    return invalid_argument(fmt::format("input '{}' was given shape {} of rank {}, but the engine expects rank {}",
                                        info.name, dims_to_string(dims), dims.size(), info.min.size()));
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < info.min[d] || dims[d] > info.max[d]) {
      return invalid_argument(
          fmt::format("input '{}' dim {} is {}, outside the engine's profile [{}, {}]: use a shape in that range or "
                      "rebuild with --profile",
                      info.name, d, dims[d], info.min[d], info.max[d]));
    }
  }
  Dims& wanted = wanted_[static_cast<size_t>(input)];
  if (!std::equal(wanted.begin(), wanted.end(), dims.begin(), dims.end())) {
    std::copy(dims.begin(), dims.end(), wanted.begin());
    current_ = nullptr;
  }
  return Status::ok();
}

Status ContextImpl::bind() {
  FW_RETURN_IF_ERROR(check_idle());
  if (current_ != nullptr) return Status::ok();
  for (auto it = cache_.begin(); it != cache_.end(); ++it) {
    if ((*it)->input_dims() == wanted_) {
      cache_.splice(cache_.begin(), cache_, it);
      current_ = cache_.front().get();
      return Status::ok();
    }
  }
  FW_ASSIGN_OR_RETURN(std::unique_ptr<BoundShape> bound,
                      BoundShape::create(*engine_, wanted_, team_->size(), arena_.data()));
  if (bound->workspace_bytes() > workspace_.size_bytes()) {
    return internal_error(fmt::format("kernels want {} bytes of workspace, more than the {} of the profile's maximum",
                                      bound->workspace_bytes(), workspace_.size_bytes()));
  }
  if (cache_.size() >= kCachedShapes) cache_.pop_back();
  cache_.push_front(std::move(bound));
  current_ = cache_.front().get();
  return Status::ok();
}

std::span<const int64_t> ContextImpl::output_dims(int output) const {
  return current_ == nullptr ? std::span<const int64_t>() : current_->output_dims()[static_cast<size_t>(output)];
}

uint64_t ContextImpl::output_bytes(int output) const {
  if (current_ == nullptr) return 0;
  return static_cast<uint64_t>(element_count(current_->output_dims()[static_cast<size_t>(output)])) *
         dtype_size(engine_->plan().outputs[static_cast<size_t>(output)].dtype);
}

Status ContextImpl::check_io(std::span<const void* const> inputs, std::span<void* const> outputs) const {
  if (inputs.size() != engine_->plan().inputs.size() || outputs.size() != engine_->plan().outputs.size()) {
    return invalid_argument(fmt::format("run() was given {} inputs and {} outputs; the engine has {} and {}",
                                        inputs.size(), outputs.size(), engine_->plan().inputs.size(),
                                        engine_->plan().outputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr && element_count(current_->input_dims()[i]) > 0) {
      return invalid_argument(fmt::format("input '{}' is a null pointer", engine_->plan().inputs[i].name));
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr && element_count(current_->output_dims()[i]) > 0) {
      return invalid_argument(fmt::format("output '{}' is a null pointer", engine_->plan().outputs[i].name));
    }
  }
  return Status::ok();
}

Status ContextImpl::run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  FW_RETURN_IF_ERROR(bind());
  FW_RETURN_IF_ERROR(check_io(inputs, outputs));
  return run_bound(inputs, outputs);
}

Status ContextImpl::run_bound(std::span<const void* const> inputs, std::span<void* const> outputs) {
  current_->set_io(inputs, outputs, workspace_.data());
  if (observer_) {
    run_steps_observed();
  } else if (profiler_) {
    run_steps_timed();
  } else {
    run_steps();
  }
  return report_faults();
}

void ContextImpl::run_steps() {
  const BoundShape* bound = current_;
  run_on_workers([bound](Worker& worker) {
    const size_t steps = bound->step_count();
    for (size_t step = 0; step < steps; ++step) {
      bound->launch(step, worker);
      worker.barrier();
    }
  });
}

void ContextImpl::run_steps_timed() {
  const BoundShape* bound = current_;
  double* step_ms = step_ms_.data();
  run_on_workers([bound, step_ms](Worker& worker) {
    using Clock = std::chrono::steady_clock;
    auto before = Clock::now();
    for (size_t step = 0; step < bound->step_count(); ++step) {
      bound->launch(step, worker);
      worker.barrier();
      if (worker.rank() == 0) {
        const auto now = Clock::now();
        step_ms[step] = std::chrono::duration<double, std::milli>(now - before).count();
        before = now;
      }
    }
  });
  for (size_t step = 0; step < step_ms_.size(); ++step) profiler_(static_cast<int>(step), step_ms_[step]);
}

void ContextImpl::run_steps_observed() {
  const BoundShape* bound = current_;
  for (size_t step = 0; step < bound->step_count(); ++step) {
    run_on_workers([bound, step](Worker& worker) { bound->launch(step, worker); });
    const engine::Step& plan_step = engine_->plan().steps[step];
    for (size_t output = 0; output < plan_step.outputs.size(); ++output) {
      const TensorDesc& desc = bound->output_desc(step, output);
      TensorInfo info;
      info.name = plan_step.output_names[output];
      info.dtype = desc.dtype;
      info.dims = desc.dims;
      std::vector<std::byte> copy(static_cast<size_t>(desc.size_bytes()));
      gather_contiguous(desc, static_cast<const std::byte*>(bound->output_data(step, output)), copy.data());
      observer_(static_cast<int>(step), static_cast<int>(output), info, copy);
    }
  }
}

Status ContextImpl::report_faults() {
  Status status;
  for (size_t step = 0; step < current_->step_count(); ++step) {
    const uint32_t faults = current_->take_faults(step);
    if (faults == 0 || !status.is_ok()) continue;
    const engine::Step& plan_step = engine_->plan().steps[step];
    status = invalid_argument(fmt::format("step '{}' ({}): {}", plan_step.name, fmt::join(plan_step.sources, ", "),
                                          (faults & kernels::kIndexOutOfRange) != 0
                                              ? "an index in the input data is outside the table that it selects from"
                                              : "the data is not valid"));
  }
  return status;
}

Status ContextImpl::enqueue(std::span<const void* const> inputs, std::span<void* const> outputs,
                            std::function<void(Status)> done) {
  std::unique_lock lock(runner_mutex_);
  FW_RETURN_IF_ERROR(bind());
  FW_RETURN_IF_ERROR(check_io(inputs, outputs));
  queued_inputs_.assign(inputs.begin(), inputs.end());
  queued_outputs_.assign(outputs.begin(), outputs.end());
  queued_done_ = std::move(done);
  if (!runner_.joinable()) {
    try {
      runner_ = std::thread([this] { runner_loop(); });
    } catch (const std::system_error& error) {
      queued_done_ = nullptr;
      return out_of_memory(fmt::format(
          "could not start the thread that runs what is enqueued: {}; use run(), or raise the limit (ulimit -u)",
          error.what()));
    }
  }
  runner_busy_ = true;
  lock.unlock();
  runner_wake_.notify_one();
  return Status::ok();
}

void ContextImpl::runner_loop() {
  std::unique_lock lock(runner_mutex_);
  for (;;) {
    runner_wake_.wait(lock, [&] { return runner_busy_ || runner_stop_; });
    if (!runner_busy_) return;
    std::function<void(Status)> done = std::move(queued_done_);
    lock.unlock();
    Status status = run_bound(queued_inputs_, queued_outputs_);
    // Free before the callback, so that it may enqueue the next run; wait() waits for its end as well, since what it
    // refers to often ends with the waiting thread's frame.
    lock.lock();
    runner_busy_ = false;
    runner_calling_ = true;
    lock.unlock();
    if (done) done(std::move(status));
    done = nullptr;
    lock.lock();
    runner_calling_ = false;
    runner_idle_.notify_all();
  }
}

void ContextImpl::wait() {
  std::unique_lock lock(runner_mutex_);
  if (std::this_thread::get_id() == runner_.get_id()) return;  // in done(), which would wait for itself
  runner_idle_.wait(lock, [&] { return !runner_busy_ && !runner_calling_; });
}

}  // namespace flywheel::runtime
