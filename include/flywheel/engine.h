// SPDX-License-Identifier: Apache-2.0
// The runtime: load an engine file, make contexts, run. Needs the standard library alone and links only the runtime.
//
//   auto engine = flywheel::Engine::load("resnet50.engine");
//   auto context = engine.value()->create_context();
//   context.value()->set_shape(0, {8, 3, 224, 224});
//   context.value()->run(inputs, outputs);
//
// Engine: immutable, any thread; contexts keep it alive and share its weights (mapped from the file, not copied).
// ExecutionContext: one batch in flight, one thread at a time; several contexts of one engine run concurrently.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/dtype.h"
#include "flywheel/status.h"

namespace flywheel {

class ExecutionContext;

// An input or output of an engine.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;           // -1 where the extent depends on the input shapes
  std::vector<std::string> dim_names;  // the symbol or expression of each dim, "" for a plain number
  // Inputs only: the profile. Equal to dims where a dim is fixed.
  std::vector<int64_t> min, opt, max;
};

// One step of the engine, for inspection and profiles.
struct StepInfo {
  std::string name;                  // unique in the engine
  std::string family, tactic;        // e.g. "conv", "conv_f32_14x32_avx512"
  std::vector<std::string> sources;  // the ONNX nodes that it computes
  std::string problem;               // at the profile's opt shapes
  double tuned_ms = 0;               // what the tuner measured at opt; 0 when chosen by heuristic
};

struct EngineMemory {
  uint64_t weights_bytes = 0;    // mapped, shared by all contexts
  uint64_t arena_bytes = 0;      // each context, at the profile's max
  uint64_t workspace_bytes = 0;  // each context, kernels' scratch at the profile's max (for the default thread count)
};

struct LoadOptions {
  // Reads the file into memory instead of mapping it. A mapped file must not be written into while the engine lives
  // (replacing it by a rename is fine): results would change, and truncating it would end the process.
  bool copy = false;
};

struct ContextOptions {
  int threads = 0;  // 0: all cores this process may use
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Maps and checks the file. kNotFound; kCorrupt (magic, checksum, truncation, an offset out of bounds); kIncompatible
  // (format version, device, instruction set: with found and needed). The weights are not read yet: their checksum is
  // compared when the first context is made.
  static Result<std::shared_ptr<Engine>> load(const std::string& path, const LoadOptions& options = {});
  // Would it run here? The same refusals, reading only the header. Nothing is loaded.
  static Status check(const std::string& path);
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  virtual std::span<const TensorInfo> inputs() const = 0;
  virtual std::span<const TensorInfo> outputs() const = 0;
  virtual std::span<const StepInfo> steps() const = 0;
  virtual EngineMemory memory() const = 0;
  // The measured latency in ms for batch sizes, (batch, ms) ascending; empty when not measured at build.
  virtual std::span<const std::pair<int64_t, double>> latency_curve() const = 0;
  virtual uint64_t model_hash() const = 0;
  virtual std::string_view build_record() const = 0;  // how it was built: machine, options, tuning, as JSON

  // Index by name; nullopt when there is none.
  std::optional<int> find_input(std::string_view name) const;
  std::optional<int> find_output(std::string_view name) const;

  // Takes the memory for the profile's max at once. kOutOfMemory says how much; kCorrupt (the first time) when the
  // weights are damaged.
  virtual Result<std::unique_ptr<ExecutionContext>> create_context(const ContextOptions& options = {}) const = 0;
};

class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;
  virtual const Engine& engine() const = 0;
  virtual int threads() const = 0;

  // Sets one input's extent. kInvalidArgument outside the profile, naming input, dim, value and range. Initially opt.
  virtual Status set_shape(int input, std::span<const int64_t> dims) = 0;
  Status set_shape(int input, std::initializer_list<int64_t> dims) {
    return set_shape(input, std::span<const int64_t>(dims.begin(), dims.size()));
  }
  // Binds all steps for the current shapes: microseconds to milliseconds for new ones, nothing for recently used ones.
  // run() does it when needed; call it to pay beforehand. kInvalidArgument when the inputs' shapes contradict each
  // other.
  virtual Status bind() = 0;
  virtual std::span<const int64_t> input_dims(int input) const = 0;
  // REQUIRES: bind() succeeded since the last set_shape.
  virtual std::span<const int64_t> output_dims(int output) const = 0;
  virtual uint64_t output_bytes(int output) const = 0;

  // Runs on contiguous row-major host arrays of the current shapes, one pointer each in engine order. Blocks until
  // outputs are complete. After the first call for a shape it neither allocates nor takes a lock of the process's.
  // kInvalidArgument when data is bad in a way only the data shows (an index out of range): names the step.
  virtual Status run(std::span<const void* const> inputs, std::span<void* const> outputs) = 0;

  // The same without blocking: runs on a thread of the context, then calls `done` on it, where the next run may be
  // enqueued. Until `done` is called the run is in flight: the arrays must stay valid, set_shape(), bind(), run() and
  // enqueue() give kUnavailable, and set_profiler() and set_observer() must not be called. kOutOfMemory when the thread
  // cannot be started. The context must not be destroyed from within `done`.
  virtual Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs,
                         std::function<void(Status)> done) = 0;
  // Blocks until nothing is in flight and `done` has returned. From within `done` it returns at once.
  virtual void wait() = 0;

  // When set, run() reports each step's wall time in ms (costs a clock read a step). `step` indexes Engine::steps().
  virtual void set_profiler(std::function<void(int step, double ms)> profiler) = 0;
  // When set, run() hands out each step's outputs as contiguous arrays after the step (slow; for verification).
  using Observer = std::function<void(int step, int output, const TensorInfo& info, std::span<const std::byte> data)>;
  virtual void set_observer(Observer observer) = 0;
};

}  // namespace flywheel
