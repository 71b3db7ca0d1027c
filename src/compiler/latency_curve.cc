// SPDX-License-Identifier: Apache-2.0
#include "compiler/latency_curve.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "runtime/engine_impl.h"

namespace flywheel {
namespace {

constexpr double kMaxSeconds = 3;  // of measuring, for the whole curve
constexpr int kRunsPerBatch = 5;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool batches_along_dim_0(const engine::Plan& plan) {
  if (plan.inputs.empty()) return false;
  for (const engine::IoTensor& input : plan.inputs) {
    if (input.dims.empty() || input.dims[0] != plan.inputs[0].dims[0] || input.dim_texts[0].empty()) return false;
  }
  return true;
}

}  // namespace

Status measure_latency_curve(lower::Assembled& assembled, const Machine& machine, int threads, uint64_t model_hash,
                             tune::TimingCache& cache) {
  if (!batches_along_dim_0(assembled.plan)) return Status::ok();
  const engine::IoTensor& first = assembled.plan.inputs[0];
  std::vector<int64_t> batches;
  for (int64_t batch = std::max<int64_t>(1, first.min[0]); batch < first.max[0]; batch *= 2) batches.push_back(batch);
  batches.push_back(first.max[0]);
  std::string key = fmt::format("{}; curve; {} threads; model {:016x}; weights {}", machine.fingerprint(), threads,
                                model_hash, assembled.weights.size());
  for (const engine::IoTensor& input : assembled.plan.inputs) key += "; " + dims_to_string(input.opt);
  std::string tactics;
  for (const engine::Step& step : assembled.plan.steps) tactics += step.tactic + ";";
  key += fmt::format("; tactics {:016x}", XXH3_64bits(tactics.data(), tactics.size()));

  FW_ASSIGN_OR_RETURN(std::shared_ptr<runtime::EngineImpl> engine,
                      runtime::EngineImpl::from_plan(assembled.plan, assembled.weights));
  ContextOptions options;
  options.threads = threads;
  FW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context, engine->create_context(options));
  std::vector<AlignedBuffer> buffers;
  std::vector<const void*> inputs;
  auto add_buffer = [&](uint64_t bytes) -> Result<std::byte*> {
    FW_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(bytes + 1, "a buffer for measuring"));
    buffers.push_back(std::move(buffer));
    return buffers.back().data();
  };
  for (const engine::IoTensor& input : assembled.plan.inputs) {
    Dims largest = input.opt;
    largest[0] = input.max[0];
    FW_ASSIGN_OR_RETURN(std::byte * data,
                        add_buffer(static_cast<uint64_t>(element_count(largest)) * dtype_size(input.dtype)));
    inputs.push_back(data);
  }
  double spent = 0;
  bool cached = false;
  for (int64_t batch : batches) {
    const std::string name = fmt::format("batch {}", batch);
    std::optional<double> ms = cache.find(key, name);
    cached |= ms.has_value();
    if (!ms) {
      // A curve that the cache has, if only a part of it, is taken as it is: measuring on would change the engine's
      // bytes.
      if (cached || spent > kMaxSeconds) break;
      for (size_t i = 0; i < assembled.plan.inputs.size(); ++i) {
        Dims dims = assembled.plan.inputs[i].opt;
        dims[0] = batch;
        FW_RETURN_IF_ERROR(context->set_shape(static_cast<int>(i), dims));
      }
      FW_RETURN_IF_ERROR(context->bind());
      std::vector<void*> outputs;
      const size_t kept = buffers.size();
      for (size_t i = 0; i < assembled.plan.outputs.size(); ++i) {
        FW_ASSIGN_OR_RETURN(std::byte * data, add_buffer(context->output_bytes(static_cast<int>(i))));
        outputs.push_back(data);
      }
      double best = 1e9;
      const double batch_start = now_s();
      for (int run = 0; run <= kRunsPerBatch && (run < 2 || now_s() - batch_start < kMaxSeconds / 3); ++run) {
        const double start = now_s();
        FW_RETURN_IF_ERROR(context->run(inputs, outputs));
        if (run > 0) best = std::min(best, (now_s() - start) * 1e3);
      }
      buffers.resize(kept);
      spent += now_s() - batch_start;
      cache.record(key, name, best);
      ms = cache.find(key, name);
    }
    assembled.plan.latency_curve.emplace_back(batch, *ms);
  }
  return Status::ok();
}

}  // namespace flywheel
