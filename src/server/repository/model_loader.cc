// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_loader.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "server/config/parse_config.h"
#include "server/repository/buffer_pool.h"
#include "server/repository/engine_description.h"
#include "server/repository/model_folder.h"
#include "server/repository/model_instance.h"
#include "server/repository/warmup.h"
#include "server/schedule/scheduler.h"

namespace flywheel::repository {
namespace {

// Outputs of batches whose responses are still being sent.
constexpr size_t kKeptBlocksPerInstance = 8;

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

Result<std::shared_ptr<Engine>> ModelLoader::load_engine(const config::ModelConfig& parsed,
                                                         const std::string& version_folder, int64_t version,
                                                         const std::function<bool()>& keep_going,
                                                         std::string& file_name) const {
  file_name = parsed.default_model_filename;
  if (file_name.empty()) {
    file_name = file_exists(version_folder + "/model.engine") || !file_exists(version_folder + "/model.onnx")
                    ? "model.engine"
                    : "model.onnx";
  }
  const std::string path = version_folder + "/" + file_name;
  if (!file_exists(path)) {
    return not_found(
        fmt::format("'{}' does not exist: a version's folder needs model.engine or model.onnx, or the file that "
                    "default_model_filename names",
                    path));
  }
  if (!file_name.ends_with(".onnx")) return options_.engines.load(path);
  return cache_.load_or_build(path, fmt::format("{}-{}", parsed.name, version), keep_going);
}

Result<std::unique_ptr<ServedModel>> ModelLoader::load(const config::ModelConfig& parsed,
                                                       const std::string& model_folder, int64_t version,
                                                       const std::function<bool()>& keep_going) const {
  const auto begin = std::chrono::steady_clock::now();
  ServedModel::Parts parts;
  parts.version = version;
  std::string file_name;
  FW_ASSIGN_OR_RETURN(
      parts.engine, load_engine(parsed, model_folder + "/" + std::to_string(version), version, keep_going, file_name));
  config::ModelDescription description = describe_engine(*parts.engine);
  description.model_filename = file_name;
  FW_ASSIGN_OR_RETURN(parts.config,
                      config::complete_config(parsed, description, {.auto_complete = options_.auto_complete}));
  const int instances = parts.config.instance_count();
  auto pool = std::make_shared<BufferPool>(kKeptBlocksPerInstance * static_cast<size_t>(instances));
  std::vector<std::unique_ptr<schedule::BatchExecutor>> executors;
  for (int i = 0; i < instances; ++i) {
    if (!keep_going()) return Status(Code::kCancelled, "the server is stopping");
    FW_ASSIGN_OR_RETURN(std::unique_ptr<ModelInstance> instance,
                        ModelInstance::create(parts.engine, parts.config, options_.threads, pool));
    FW_RETURN_IF_ERROR(run_warmups(parts.config, model_folder, *instance));
    executors.push_back(std::move(instance));
  }
  for (const config::TensorConfig& output : parts.config.outputs) {
    parts.labels.emplace_back();
    std::string path = model_folder + "/" + (output.label_filename.empty() ? "labels.txt" : output.label_filename);
    // Without a word in the configuration, labels.txt can only mean the one output.
    if (output.label_filename.empty() && (parts.config.outputs.size() > 1 || !file_exists(path))) continue;
    FW_ASSIGN_OR_RETURN(parts.labels.back(), read_labels(path));
  }
  schedule::SchedulerOptions scheduling;
  scheduling.arbiter = options_.arbiter;
  scheduling.latency_curve = latency_curve_of(*parts.engine);
  FW_ASSIGN_OR_RETURN(parts.runner, schedule::Scheduler::create(parts.config, std::move(executors), scheduling));
  parts.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::make_unique<ServedModel>(std::move(parts));
}

}  // namespace flywheel::repository
