// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/engine_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "flywheel/engine.h"
#include "server/backend/engine/buffer_pool.h"
#include "server/backend/engine/engine_description.h"
#include "server/backend/engine/model_instance.h"

namespace flywheel::engines {
namespace {

// Outputs of batches whose responses are still being sent.
constexpr size_t kKeptBlocksPerInstance = 8;

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

class EngineModel : public backend::OpenModel {
 public:
  EngineModel(std::shared_ptr<const Engine> engine, std::string file_name, int threads)
      : engine_(std::move(engine)), file_name_(std::move(file_name)), threads_(threads) {}

  config::ModelDescription description() const override {
    config::ModelDescription description = describe_engine(*engine_);
    description.model_filename = file_name_;
    return description;
  }
  Status configure(const config::ModelConfig& config) override {
    config_ = config;
    pool_ = std::make_shared<BufferPool>(kKeptBlocksPerInstance * static_cast<size_t>(config.instance_count()));
    for (size_t i = 0; i < config_.inputs.size(); ++i) {
      const config::TensorConfig& tensor = config_.inputs[i];
      if (tensor.optional) {
        return unsupported(
            fmt::format("input '{}' of model '{}' is optional, but an engine needs all of its inputs: remove "
                        "'optional' and send the input with every request",
                        tensor.name, config_.name));
      }
      if (std::find(tensor.dims.begin(), tensor.dims.end(), -1) == tensor.dims.end()) continue;
      for (size_t j = 0; j < engine_->inputs().size(); ++j) {
        if (engine_->inputs()[j].name == tensor.name) variable_inputs_.push_back({i, j});
      }
    }
    if (config.decoupled) {
      return unsupported(fmt::format(
          "'model_transaction_policy.decoupled' of model '{}' is not supported: an engine gives exactly one "
          "response to each request; remove it",
          config.name));
    }
    return {};
  }
  Result<std::unique_ptr<schedule::BatchExecutor>> create_instance(int) override {
    FW_ASSIGN_OR_RETURN(std::unique_ptr<ModelInstance> instance,
                        ModelInstance::create(engine_, config_, threads_, pool_));
    return std::unique_ptr<schedule::BatchExecutor>(std::move(instance));
  }
  // The engine would refuse these too, but for the whole batch and only after the request has waited.
  Status check(const schedule::InferRequest& request) const override;
  backend::ModelMemory memory() const override {
    const EngineMemory memory = engine_->memory();
    return {memory.weights_bytes, memory.arena_bytes, memory.workspace_bytes};
  }
  schedule::LatencyCurve latency_curve() const override { return latency_curve_of(*engine_); }
  bool uses_arbiter() const override { return true; }
  bool makes_more_instances() const override { return true; }

 private:
  // Inputs with extents that differ between requests: the configuration's index and the engine's.
  struct VariableInput {
    size_t config_index, engine_index;
  };
  const std::shared_ptr<const Engine> engine_;
  const std::string file_name_;
  const int threads_;
  config::ModelConfig config_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<VariableInput> variable_inputs_;
};

Status EngineModel::check(const schedule::InferRequest& request) const {
  const size_t skip = config_.max_batch_size > 0 ? 1 : 0;
  for (const VariableInput& variable : variable_inputs_) {
    // What the server adds to a request comes later, and fits.
    if (variable.config_index >= request.inputs.size()) continue;
    const config::TensorConfig& tensor = config_.inputs[variable.config_index];
    const TensorInfo& info = engine_->inputs()[variable.engine_index];
    const schedule::InputView& input = request.inputs[variable.config_index];
    const std::vector<int64_t> dims = map_dims(tensor.dims, tensor.model_dims(), std::span(input.shape).subspan(skip));
    for (size_t i = 0; i < dims.size(); ++i) {
      const size_t at = i + skip;
      if (at >= info.min.size() || at >= info.max.size()) break;
      if (dims[i] >= info.min[at] && dims[i] <= info.max[at]) continue;
      return invalid_argument(fmt::format(
          "unexpected shape for input '{}' for model '{}', got [{}]: dimension {} must be in [{}, {}], for which the "
          "engine was built; build it with a larger profile to serve others",
          input.name, config_.name, fmt::join(input.shape, ","), at, info.min[at], info.max[at]));
    }
  }
  return {};
}

KnownShapes known_shapes(const config::ModelConfig& parsed) {
  KnownShapes shapes;
  shapes.max_batch = parsed.max_batch_size;
  for (const config::TensorConfig& input : parsed.inputs) {
    std::vector<int64_t> dims = input.model_dims();
    if (parsed.max_batch_size > 0) dims.insert(dims.begin(), -1);
    shapes.dims[input.name] = std::move(dims);
  }
  return shapes;
}

}  // namespace

Result<std::shared_ptr<backend::OpenModel>> EngineBackend::open(const backend::ModelSource& source) const {
  const std::string folder = source.version_folder();
  std::string file_name = source.parsed.default_model_filename;
  if (file_name.empty()) {
    file_name =
        file_exists(folder + "/model.engine") || !file_exists(folder + "/model.onnx") ? "model.engine" : "model.onnx";
  }
  const std::string path = folder + "/" + file_name;
  if (!file_exists(path)) {
    return not_found(
        fmt::format("'{}' does not exist: a version's folder needs model.engine or model.onnx, or the file that "
                    "default_model_filename names",
                    path));
  }
  Result<std::shared_ptr<Engine>> engine =
      file_name.ends_with(".onnx")
          ? cache_.load_or_build(path, fmt::format("{}-{}", source.parsed.name, source.version),
                                 known_shapes(source.parsed), source.keep_going)
          : options_.load(path);
  if (!engine.is_ok()) return engine.status();
  return std::shared_ptr<backend::OpenModel>(
      std::make_shared<EngineModel>(std::move(engine).value(), std::move(file_name), threads_));
}

}  // namespace flywheel::engines
