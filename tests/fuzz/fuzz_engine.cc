// SPDX-License-Identifier: Apache-2.0
// Fuzz target: engine files. Any bytes must give an engine or a reasoned refusal, and an engine that loads must bind
// and run inside its buffers. Checksums would stop nearly every mutation at the door, so the input is the plan's table
// itself; a file is tried as well.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine_file.h"
#include "engine/plan_table.h"
#include "runtime/engine_impl.h"

namespace {

using namespace flywheel;  // NOLINT(google-build-using-namespace): a program of one file

constexpr uint64_t kMaxBytes = 16 << 20;  // of arenas, inputs and outputs: larger ones only cost time

uint64_t bytes_of(const std::vector<int64_t>& dims, DType dtype) {
  const std::optional<int64_t> count = checked_element_count(dims);
  return !count || *count > static_cast<int64_t>(kMaxBytes) ? kMaxBytes + 1
                                                            : static_cast<uint64_t>(*count) * dtype_size(dtype);
}

void try_plan(engine::Plan plan) {
  std::vector<std::byte> weights(1 << 16);
  if (!engine::check_plan(plan, weights.size()).is_ok() || plan.arena_bytes > kMaxBytes) return;
  for (const engine::IoTensor& input : plan.inputs) {
    if (bytes_of(input.max, input.dtype) > kMaxBytes) return;
  }
  auto engine = runtime::EngineImpl::from_plan(std::move(plan), weights);
  if (!engine.is_ok()) return;
  ContextOptions options;
  options.threads = 1;
  auto context = (*engine)->create_context(options);
  if (!context.is_ok() || !(*context)->bind().is_ok()) return;
  std::vector<std::vector<std::byte>> arrays;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < (*engine)->inputs().size(); ++i) {
    const TensorInfo& info = (*engine)->inputs()[i];
    inputs.push_back(arrays.emplace_back(bytes_of(info.opt, info.dtype) + 1).data());
  }
  for (size_t i = 0; i < (*engine)->outputs().size(); ++i) {
    const uint64_t bytes = (*context)->output_bytes(static_cast<int>(i));
    if (bytes > kMaxBytes) return;
    outputs.push_back(arrays.emplace_back(bytes + 1).data());
  }
  (void)(*context)->run(inputs, outputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const Machine machine = detect_machine().value();
  if (auto file = engine::read_engine_bytes(bytes, machine); file.is_ok()) return 0;
  if (auto plan = engine::decode_plan(bytes); plan.is_ok()) try_plan(std::move(*plan));
  return 0;
}
