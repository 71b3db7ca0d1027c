// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_loader.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "server/config/parse_config.h"
#include "server/config/server_tensors.h"
#include "server/repository/model_folder.h"
#include "server/repository/warmup.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/sequence_scheduler.h"
#include "server/schedule/sequence_tensors.h"

namespace flywheel::repository {
namespace {

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

Result<std::vector<std::vector<std::string>>> read_label_files(const config::ModelConfig& config,
                                                               const std::string& model_folder) {
  std::vector<std::vector<std::string>> labels;
  for (const config::TensorConfig& output : config.outputs) {
    labels.emplace_back();
    const std::string path =
        model_folder + "/" + (output.label_filename.empty() ? "labels.txt" : output.label_filename);
    // Without a word in the configuration, labels.txt can only mean the one output.
    if (output.label_filename.empty() && (config.outputs.size() > 1 || !file_exists(path))) continue;
    FW_ASSIGN_OR_RETURN(labels.back(), read_labels(path));
  }
  return labels;
}

// As the configuration says, or else as the files do.
const backend::Backend& ModelLoader::choose_backend(const config::ModelConfig& parsed,
                                                    const std::string& version_folder) const {
  const std::string& name = parsed.backend;
  if (name == "flywheel" || name == "onnxruntime") return engines_;
  if (name == "python") return python_;
  if (!name.empty()) return native_;
  const std::string& file = parsed.default_model_filename;
  const bool only_python = !file_exists(version_folder + "/model.engine") &&
                           !file_exists(version_folder + "/model.onnx") && file_exists(version_folder + "/model.py");
  if (file.empty() ? only_python : file.ends_with(".py")) return python_;
  return engines_;
}

Result<std::unique_ptr<ServedModel>> ModelLoader::load(const config::ModelConfig& parsed,
                                                       const std::string& model_folder, int64_t version,
                                                       const std::function<bool()>& keep_going,
                                                       const ServedModelPtr& previous) const {
  const auto begin = std::chrono::steady_clock::now();
  ServedModel::Parts parts;
  parts.version = version;
  parts.written = parsed;
  parts.files_state = state_of_files(model_folder, "config.pbtxt");
  std::shared_ptr<backend::OpenModel> model =
      previous != nullptr ? previous->model_for(parsed, parts.files_state) : nullptr;
  const bool is_new = model == nullptr;
  if (is_new) {
    const backend::Backend& backend = choose_backend(parsed, model_folder + "/" + std::to_string(version));
    FW_ASSIGN_OR_RETURN(model, backend.open({.parsed = parsed,
                                             .model_folder = model_folder,
                                             .version = version,
                                             .auto_complete = options_.auto_complete,
                                             .keep_going = keep_going}));
  }
  const config::ModelConfig& written = model->written() != nullptr ? *model->written() : parsed;
  FW_ASSIGN_OR_RETURN(
      parts.config, config::complete_config(written, model->description(), {.auto_complete = options_.auto_complete}));
  if (is_new) FW_RETURN_IF_ERROR(model->configure(config::with_server_tensors(parts.config)));
  std::optional<schedule::SequenceTensors> sequences;
  if (parts.config.sequence_batching) {
    FW_ASSIGN_OR_RETURN(sequences, schedule::SequenceTensors::create(parts.config, model_folder));
  }
  std::vector<std::unique_ptr<schedule::BatchExecutor>> executors;
  for (int i = 0; i < parts.config.instance_count(); ++i) {
    if (!keep_going()) return Status(Code::kCancelled, "the server is stopping");
    FW_ASSIGN_OR_RETURN(std::unique_ptr<schedule::BatchExecutor> instance, model->create_instance(i));
    FW_RETURN_IF_ERROR(
        run_warmups(parts.config, model_folder, sequences ? &*sequences : nullptr, keep_going, *instance));
    executors.push_back(std::move(instance));
  }
  FW_ASSIGN_OR_RETURN(parts.labels, read_label_files(parts.config, model_folder));
  schedule::SchedulerOptions scheduling;
  if (!is_new) scheduling.statistics = previous->shared_statistics();
  FW_ASSIGN_OR_RETURN(scheduling.arbiter_needs,
                      needs_of(parts.config, options_.rate_limits, model->uses_arbiter(), options_.arbiter));
  if (model->uses_arbiter() || !scheduling.arbiter_needs.resources.empty()) scheduling.arbiter = options_.arbiter;
  scheduling.latency_curve = model->latency_curve();
  scheduling.execution_timeout_ns = model->execution_timeout_ns();
  if (sequences) {
    FW_ASSIGN_OR_RETURN(parts.runner, schedule::SequenceScheduler::create(parts.config, *std::move(sequences),
                                                                          std::move(executors), scheduling));
  } else {
    FW_ASSIGN_OR_RETURN(parts.runner, schedule::Scheduler::create(parts.config, std::move(executors), scheduling));
  }
  parts.runner = add_layers(
      parts.config, std::move(parts.runner),
      [model](const schedule::InferRequest& request) { return model->check(request); }, options_.cache);
  parts.model = model;
  parts.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::make_unique<ServedModel>(std::move(parts));
}

}  // namespace flywheel::repository
