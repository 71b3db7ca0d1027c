// SPDX-License-Identifier: Apache-2.0
#include "server/repository/ensemble_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "server/config/parse_config.h"
#include "server/ensemble/ensemble_runner.h"
#include "server/repository/model_loader.h"
#include "server/repository/runner_layers.h"

namespace flywheel::repository {
namespace {

class TableModels : public ensemble::StepModels {
 public:
  explicit TableModels(const ModelTable& table) : table_(table) {}
  Result<ensemble::StepModel> find(std::string_view name, int64_t version) const override {
    FW_ASSIGN_OR_RETURN(ServedModelPtr model, table_.find(name, version));
    const config::ModelConfig* config = &model->config();
    return ensemble::StepModel{std::move(model), config};
  }
  Status prepare(const ensemble::StepModel& model, schedule::InferRequest& request) const override {
    return served(model).prepare(request);
  }
  void infer(const ensemble::StepModel& model, schedule::RequestPtr request) const override {
    served(model).infer(std::move(request));
  }

 private:
  static const ServedModel& served(const ensemble::StepModel& model) {
    return *static_cast<const ServedModel*>(model.handle.get());
  }
  const ModelTable& table_;
};

// Why the model of a step is not there.
std::string why_absent(const ModelTable& table, const std::string& name) {
  const auto models = table.snapshot();
  const auto model = models->find(name);
  if (model == models->end()) return {};
  std::string reasons = model->second.failure;
  for (const auto& [version, entry] : model->second.versions) {
    if (entry.state != ModelState::kReady && !entry.reason.empty())
      reasons += fmt::format("version {} is at {} state: {};", version, model_state_name(entry.state), entry.reason);
  }
  return reasons.empty() ? reasons : fmt::format("Model '{}' loading failed with error: {}", name, reasons);
}

// Labels of the step's output that an ensemble's output comes from.
std::vector<std::string> inherited_labels(const ensemble::Graph& graph, size_t tensor, const ModelTable& table) {
  for (const ensemble::Graph::Step& step : graph.steps) {
    for (const ensemble::Graph::Binding& output : step.outputs) {
      if (output.tensor != tensor) continue;
      const Result<ServedModelPtr> model = table.find(step.model, step.version);
      return model.is_ok() ? (*model)->labels(output.name) : std::vector<std::string>();
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ServedModel>> load_ensemble(const config::ModelConfig& parsed, const std::string& model_folder,
                                                   int64_t version, const ModelTable& table,
                                                   const std::shared_ptr<schedule::ResponseCache>& cache) {
  const auto begin = std::chrono::steady_clock::now();
  auto blueprint = std::make_shared<ensemble::Blueprint>();
  FW_ASSIGN_OR_RETURN(blueprint->config, config::complete_ensemble(parsed));
  std::string missing;
  for (const std::string& step : step_models(parsed)) {
    const auto models = table.snapshot();
    if (!models->contains(step)) missing += (missing.empty() ? "" : ", ") + step;
  }
  if (!missing.empty()) {
    return invalid_argument(
        fmt::format("ensemble {} contains models that are not available or ambiguous: {}", parsed.name, missing));
  }
  std::vector<ServedModelPtr> found;  // kept while the graph is built
  FW_ASSIGN_OR_RETURN(
      blueprint->graph,
      ensemble::build_graph(blueprint->config,
                            [&](std::string_view name, int64_t wanted) -> Result<const config::ModelConfig*> {
                              Result<ServedModelPtr> model = table.find(name, wanted);
                              if (!model.is_ok()) return not_found(why_absent(table, std::string(name)));
                              found.push_back(*model);
                              return &found.back()->config();
                            }));
  if (blueprint->graph.decoupled()) {
    FW_ASSIGN_OR_RETURN(blueprint->config, config::complete_ensemble(parsed, true));
  }
  blueprint->models = std::make_shared<TableModels>(table);
  ServedModel::Parts parts;
  parts.version = version;
  parts.config = blueprint->config;
  FW_ASSIGN_OR_RETURN(parts.labels, read_label_files(parts.config, model_folder));
  for (size_t i = 0; i < parts.labels.size(); ++i) {
    if (parts.labels[i].empty())
      parts.labels[i] = inherited_labels(blueprint->graph, blueprint->graph.outputs[i], table);
  }
  parts.runner = add_layers(parts.config, std::make_unique<ensemble::EnsembleRunner>(blueprint), {}, cache);
  parts.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::make_unique<ServedModel>(std::move(parts));
}

std::vector<std::string> step_models(const config::ModelConfig& config) {
  std::vector<std::string> names;
  if (!config.ensemble) return names;
  for (const config::EnsembleStep& step : config.ensemble->steps) {
    if (std::find(names.begin(), names.end(), step.model) == names.end()) names.push_back(step.model);
  }
  return names;
}

std::vector<std::vector<ServedModelPtr>> stop_order(const std::vector<ServedModelPtr>& models) {
  // A model's group is behind those of all ensembles that use it. A circle, which only a replaced step can make, ends
  // with the number of models.
  std::map<std::string, size_t> group;
  for (size_t round = 0; round < models.size(); ++round) {
    bool changed = false;
    for (const ServedModelPtr& model : models) {
      for (const std::string& step : step_models(model->config())) {
        if (group[step] > group[model->name()]) continue;
        group[step] = group[model->name()] + 1;
        changed = true;
      }
    }
    if (!changed) break;
  }
  std::map<size_t, std::vector<ServedModelPtr>> groups;
  for (const ServedModelPtr& model : models) groups[group[model->name()]].push_back(model);
  std::vector<std::vector<ServedModelPtr>> order;
  for (auto& [number, members] : groups) order.push_back(std::move(members));
  return order;
}

}  // namespace flywheel::repository
