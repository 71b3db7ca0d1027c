// SPDX-License-Identifier: Apache-2.0
// Engines for the server's tests, which need neither the compiler nor its kernels: a "model file" is one line of text
// that names what the engine computes. Header only; linked into tests alone.
//   double    x FP32 [N,4] -> y = 2x            scores   x FP32 [N,3] -> scores = x
//   fixed     a INT32 [2,3] -> b = a + 1        text     ids, mask INT64 [N,L<=16] -> sum FP32 [N,L] = ids * mask
//   type=FP16 x of that type [N,2] -> y = x     index    i INT32 [N,1] -> j = i, an error when i > 9
//   running   x FP32 [N,1], start INT32 [N,1], sum_in FP32 [N,1] -> y, sum_out = (start ? 0 : sum_in) + x
//   ragged    x FP32 [L], ends INT32 [N] -> total FP32 [N,1], same FP32 [L]: sums of runs of x that end there, and x
//   lengths   x FP32 [L] and what the server computes of it: ends, count INT32 [N], bounds FP32 [N+1], longest INT32
//   [M],
//             shapes INT32 [N,1], flat INT32 [N] -> total FP32 [N,7]: these, with both bounds, and M for longest
//   controls  x FP32 [N,1], start, end, ready INT32 [N,1], id INT64 [N,1] -> seen FP32 [N,5]
//   big       x FP32 [N,4] -> y FP32 [N,262144] = x[0]
// Anything else does not load.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "flywheel/engine.h"
#include "server/backend/engine/engine_cache.h"
#include "tensor/shape.h"

namespace flywheel::engines {

// Shared by all engines of a test: what they ran, and a gate that holds them.
class FakeDevice {
 public:
  // For runs of so many rows; 0: for all.
  void close_gate(int64_t rows = 0) {
    std::lock_guard lock(mutex_);
    open_ = false;
    held_rows_ = rows;
  }
  void open_gate() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Waits until `count` runs have begun.
  bool wait_for_runs(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return batches_.size() >= count; });
  }
  std::vector<int64_t> batches() const {
    std::lock_guard lock(mutex_);
    return batches_;
  }
  // The most runs at one time.
  int most_running() const {
    std::lock_guard lock(mutex_);
    return most_running_;
  }
  void begin_run(int64_t rows) {
    std::unique_lock lock(mutex_);
    batches_.push_back(rows);
    most_running_ = std::max(most_running_, ++running_);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || (held_rows_ != 0 && rows != held_rows_); });
  }
  void end_run() {
    std::lock_guard lock(mutex_);
    --running_;
  }
  int delay_us = 0;
  std::atomic<int> live_contexts{0};
  std::atomic<int> loads{0};  // begun

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int64_t held_rows_ = 0;
  int running_ = 0, most_running_ = 0;
  std::vector<int64_t> batches_;
};

class FakeEngine : public Engine {
 public:
  FakeEngine(std::string kind, std::shared_ptr<FakeDevice> device)
      : kind_(std::move(kind)), device_(std::move(device)) {}

  bool define() {
    auto batched = [](std::string name, DType dtype, std::vector<int64_t> row, int64_t max = 8) {
      TensorInfo info;
      info.name = std::move(name);
      info.dtype = dtype;
      info.dims = info.min = info.opt = info.max = row;
      info.dim_names.assign(row.size(), "");
      auto lead = [](std::vector<int64_t>& dims, int64_t value) { dims.insert(dims.begin(), value); };
      lead(info.dims, -1), lead(info.min, 1), lead(info.opt, 1), lead(info.max, max);
      info.dim_names.insert(info.dim_names.begin(), "batch");
      return info;
    };
    if (kind_ == "double") {
      inputs_ = {batched("x", DType::kFloat32, {4})};
      outputs_ = {batched("y", DType::kFloat32, {4})};
    } else if (kind_ == "scores") {
      inputs_ = {batched("x", DType::kFloat32, {3})};
      outputs_ = {batched("scores", DType::kFloat32, {3})};
    } else if (kind_ == "big") {
      inputs_ = {batched("x", DType::kFloat32, {4})};
      outputs_ = {batched("y", DType::kFloat32, {262144})};
    } else if (kind_ == "index") {
      inputs_ = {batched("i", DType::kInt32, {1})};
      outputs_ = {batched("j", DType::kInt32, {1})};
    } else if (kind_ == "fixed") {
      TensorInfo info;
      info.name = "a";
      info.dtype = DType::kInt32;
      info.dims = info.min = info.opt = info.max = {2, 3};
      info.dim_names = {"", ""};
      inputs_ = {info};
      info.name = "b";
      outputs_ = {info};
    } else if (kind_ == "text") {
      auto text = [&](std::string name, DType dtype) {
        TensorInfo info = batched(std::move(name), dtype, {-1});
        info.dim_names[1] = "length";
        info.min[1] = 1, info.opt[1] = 8, info.max[1] = 16;
        return info;
      };
      inputs_ = {text("ids", DType::kInt64), text("mask", DType::kInt64)};
      outputs_ = {text("sum", DType::kFloat32)};
    } else if (kind_ == "running") {
      inputs_ = {batched("x", DType::kFloat32, {1}), batched("start", DType::kInt32, {1}),
                 batched("sum_in", DType::kFloat32, {1})};
      outputs_ = {batched("y", DType::kFloat32, {1}), batched("sum_out", DType::kFloat32, {1})};
    } else if (kind_ == "ragged") {
      inputs_ = {batched("x", DType::kFloat32, {}, 64), batched("ends", DType::kInt32, {})};
      outputs_ = {batched("total", DType::kFloat32, {1}), batched("same", DType::kFloat32, {})};
    } else if (kind_ == "lengths") {
      inputs_ = {batched("x", DType::kFloat32, {}, 64),     batched("ends", DType::kInt32, {}),
                 batched("count", DType::kInt32, {}),       batched("bounds", DType::kFloat32, {}, 9),
                 batched("longest", DType::kInt32, {}, 64), batched("shapes", DType::kInt32, {1}),
                 batched("flat", DType::kInt32, {})};
      outputs_ = {batched("total", DType::kFloat32, {7})};
    } else if (kind_ == "controls") {
      inputs_ = {batched("x", DType::kFloat32, {1}), batched("start", DType::kInt32, {1}),
                 batched("end", DType::kInt32, {1}), batched("ready", DType::kInt32, {1}),
                 batched("id", DType::kInt64, {1})};
      outputs_ = {batched("seen", DType::kFloat32, {5})};
    } else if (kind_.starts_with("type=")) {
      for (int i = 0; i < kDTypeCount; ++i) {
        if (kind_.substr(5) != dtype_name(static_cast<DType>(i))) continue;
        inputs_ = {batched("x", static_cast<DType>(i), {2})};
        outputs_ = {batched("y", static_cast<DType>(i), {2})};
      }
    }
    return !inputs_.empty();
  }

  std::string_view name() const override { return kind_; }
  std::span<const TensorInfo> inputs() const override { return inputs_; }
  std::span<const TensorInfo> outputs() const override { return outputs_; }
  std::span<const StepInfo> steps() const override { return {}; }
  EngineMemory memory() const override { return {}; }
  std::span<const std::pair<int64_t, double>> latency_curve() const override { return {}; }
  uint64_t model_hash() const override { return 1; }
  std::string_view build_record() const override { return "{}"; }
  Result<std::unique_ptr<ExecutionContext>> create_context(const ContextOptions& options) const override;

  const std::string& kind() const { return kind_; }
  FakeDevice& device() const { return *device_; }

 private:
  const std::string kind_;
  const std::shared_ptr<FakeDevice> device_;
  std::vector<TensorInfo> inputs_, outputs_;
};

class FakeContext : public ExecutionContext {
 public:
  FakeContext(std::shared_ptr<const FakeEngine> engine, int threads) : engine_(std::move(engine)), threads_(threads) {
    for (const TensorInfo& input : engine_->inputs()) inputs_.push_back(input.opt);
    for (const TensorInfo& output : engine_->outputs()) outputs_.push_back(output.dims);
    ++engine_->device().live_contexts;
  }
  ~FakeContext() override { --engine_->device().live_contexts; }
  const Engine& engine() const override { return *engine_; }
  int threads() const override { return threads_; }
  Status set_shape(int input, std::span<const int64_t> dims) override {
    const TensorInfo& info = engine_->inputs()[static_cast<size_t>(input)];
    if (dims.size() != info.dims.size()) return invalid_argument("rank of " + info.name);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < info.min[i] || dims[i] > info.max[i]) return invalid_argument("extent of " + info.name);
    }
    inputs_[static_cast<size_t>(input)].assign(dims.begin(), dims.end());
    return {};
  }
  Status bind() override {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      for (size_t i = 0; i < outputs_[o].size(); ++i) {
        // The totals of a ragged model are as many as the ends of its rows.
        const size_t from = engine_->outputs()[o].name == "total" ? 1 : 0;
        if (engine_->outputs()[o].dims[i] == -1) outputs_[o][i] = inputs_[from][i];
      }
    }
    return {};
  }
  std::span<const int64_t> input_dims(int input) const override { return inputs_[static_cast<size_t>(input)]; }
  std::span<const int64_t> output_dims(int output) const override { return outputs_[static_cast<size_t>(output)]; }
  uint64_t output_bytes(int output) const override {
    const size_t index = static_cast<size_t>(output);
    return static_cast<uint64_t>(element_count(outputs_[index])) * dtype_size(engine_->outputs()[index].dtype);
  }
  Status run(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    engine_->device().begin_run(inputs_[0][0]);
    if (const int delay_us = engine_->device().delay_us; delay_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    }
    const Status status = compute(inputs, outputs);
    engine_->device().end_run();
    return status;
  }
  Status enqueue(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::function<void(Status)> done) override {
    done(run(inputs, outputs));
    return {};
  }
  void wait() override {}
  void set_profiler(std::function<void(int, double)>) override {}
  void set_observer(Observer) override {}

 private:
  Status compute(std::span<const void* const> inputs, std::span<void* const> outputs) const {
    const size_t count = static_cast<size_t>(element_count(inputs_[0]));
    const std::string& kind = engine_->kind();
    if (kind == "double") {
      for (size_t i = 0; i < count; ++i)
        static_cast<float*>(outputs[0])[i] = 2 * static_cast<const float*>(inputs[0])[i];
    } else if (kind == "fixed") {
      for (size_t i = 0; i < count; ++i)
        static_cast<int32_t*>(outputs[0])[i] = static_cast<const int32_t*>(inputs[0])[i] + 1;
    } else if (kind == "running") {
      for (size_t i = 0; i < count; ++i) {
        const float sum = static_cast<const int32_t*>(inputs[1])[i] != 0 ? 0 : static_cast<const float*>(inputs[2])[i];
        for (void* output : outputs) static_cast<float*>(output)[i] = sum + static_cast<const float*>(inputs[0])[i];
      }
    } else if (kind == "ragged") {
      size_t at = 0;
      for (size_t row = 0; row < static_cast<size_t>(inputs_[1][0]); ++row) {
        float& total = static_cast<float*>(outputs[0])[row];
        total = 0;
        const size_t end = static_cast<size_t>(static_cast<const int32_t*>(inputs[1])[row]);
        for (; at < end && at < count; ++at) total += static_cast<const float*>(inputs[0])[at];
      }
      std::memcpy(outputs[1], inputs[0], output_bytes(1));
    } else if (kind == "lengths") {
      const auto whole = [&](size_t input, size_t row) {
        return static_cast<float>(static_cast<const int32_t*>(inputs[input])[row]);
      };
      for (size_t row = 0; row < static_cast<size_t>(inputs_[1][0]); ++row) {
        const float* bounds = static_cast<const float*>(inputs[3]) + row;
        const float seen[] = {whole(1, row), whole(2, row), bounds[0], bounds[1], static_cast<float>(inputs_[4][0]),
                              whole(5, row), whole(6, row)};
        std::memcpy(static_cast<float*>(outputs[0]) + row * 7, seen, sizeof seen);
      }
    } else if (kind == "controls") {
      for (size_t row = 0; row < count; ++row) {
        float* seen = static_cast<float*>(outputs[0]) + row * 5;
        seen[0] = static_cast<const float*>(inputs[0])[row];
        for (size_t i = 1; i < 4; ++i) seen[i] = static_cast<float>(static_cast<const int32_t*>(inputs[i])[row]);
        seen[4] = static_cast<float>(static_cast<const int64_t*>(inputs[4])[row]);
      }
    } else if (kind == "big") {
      for (size_t row = 0; row < count / 4; ++row) {
        std::fill_n(static_cast<float*>(outputs[0]) + row * 262144, 262144,
                    static_cast<const float*>(inputs[0])[row * 4]);
      }
    } else if (kind == "text") {
      for (size_t i = 0; i < count; ++i) {
        static_cast<float*>(outputs[0])[i] =
            static_cast<float>(static_cast<const int64_t*>(inputs[0])[i] * static_cast<const int64_t*>(inputs[1])[i]);
      }
    } else {
      for (size_t i = 0; i < count && kind == "index"; ++i) {
        if (static_cast<const int32_t*>(inputs[0])[i] > 9) return invalid_argument("an index is out of range");
      }
      std::memcpy(outputs[0], inputs[0], output_bytes(0));
    }
    return {};
  }
  const std::shared_ptr<const FakeEngine> engine_;
  const int threads_;
  std::vector<std::vector<int64_t>> inputs_, outputs_;
};

inline Result<std::unique_ptr<ExecutionContext>> FakeEngine::create_context(const ContextOptions& options) const {
  auto self = std::static_pointer_cast<const FakeEngine>(shared_from_this());
  return std::unique_ptr<ExecutionContext>(new FakeContext(std::move(self), options.threads));
}

inline EngineLoader fake_loader(std::shared_ptr<FakeDevice> device) {
  return [device](const std::string& path) -> Result<std::shared_ptr<Engine>> {
    ++device->loads;
    std::ifstream file(path);
    std::string kind;
    std::getline(file, kind);
    auto engine = std::make_shared<FakeEngine>(kind, device);
    if (!engine->define()) return corrupt("'" + path + "' is not an engine");
    return std::shared_ptr<Engine>(engine);
  };
}

}  // namespace flywheel::engines
