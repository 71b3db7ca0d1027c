// SPDX-License-Identifier: Apache-2.0
#include "server/ensemble/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace flywheel::ensemble {
namespace {

using config::ModelConfig;
using config::TensorConfig;

// What is known of a tensor so far, and from whom.
struct Belief {
  std::string model;
  config::DataType data_type;
  std::vector<int64_t> dims;
  std::vector<int64_t> full_dims;  // with the batch dimension
};

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

Belief belief_of(const ModelConfig& config, const TensorConfig& tensor, bool of_ensemble) {
  Belief belief{config.name, tensor.data_type, of_ensemble ? tensor.model_dims() : tensor.dims, {}};
  belief.full_dims = belief.dims;
  if (config.max_batch_size > 0) belief.full_dims.insert(belief.full_dims.begin(), -1);
  return belief;
}

class Builder {
 public:
  Builder(const ModelConfig& config, const FindConfig& find) : config_(config), find_(find) {}

  Result<Graph> build() {
    for (const TensorConfig& input : config_.inputs) {
      graph_.inputs.push_back(tensor(input.name));
      beliefs_.emplace(input.name, belief_of(config_, input, true));
    }
    for (const TensorConfig& output : config_.outputs) {
      graph_.outputs.push_back(tensor(output.name));
      graph_.tensors[graph_.outputs.back()].is_output = true;
      beliefs_.emplace(output.name, belief_of(config_, output, true));
    }
    for (const config::EnsembleStep& step : config_.ensemble->steps) FW_RETURN_IF_ERROR(add(step));
    FW_RETURN_IF_ERROR(number_stages());
    return std::move(graph_);
  }

 private:
  size_t tensor(const std::string& name) {
    const auto [it, added] = indices_.emplace(name, graph_.tensors.size());
    if (added) graph_.tensors.push_back({name, {}, false, -1});
    return it->second;
  }

  Status agree(const std::string& name, const Belief& found) {
    const auto [it, added] = beliefs_.emplace(name, found);
    if (added) return {};
    const Belief& known = it->second;
    const std::string who = fmt::format("in ensemble {}, ensemble tensor {}: ", config_.name, name);
    if (known.data_type != found.data_type) {
      return invalid_argument(fmt::format(
          "{}inconsistent data type: {} is inferred from model {} while {} is inferred "
          "from model {}",
          who, config::config_name(known.data_type), known.model, config::config_name(found.data_type), found.model));
    }
    if (!dims_agree(known.dims, found.dims) && !dims_agree(known.full_dims, found.full_dims)) {
      return invalid_argument(
          fmt::format("{}inconsistent shape: {} is inferred from model {} while {} is inferred from model {}", who,
                      shape_text(known.full_dims), known.model, shape_text(found.full_dims), found.model));
    }
    return {};
  }

  Status add(const config::EnsembleStep& step) {
    Result<const ModelConfig*> found = find_(step.model, step.version);
    if (!found.is_ok()) {
      return invalid_argument(fmt::format("ensemble '{}' depends on '{}' which has no loaded version. {}", config_.name,
                                          step.model, found.status().message()));
    }
    const ModelConfig& model = **found;
    if (model.max_batch_size != 0 && model.max_batch_size < config_.max_batch_size) {
      return invalid_argument(fmt::format(
          "ensemble {} allows maximum batch size {}, but it contains model {} which only allows maximum batch size to "
          "be {}",
          config_.name, config_.max_batch_size, step.model, model.max_batch_size));
    }
    Graph::Step made;
    made.model = step.model;
    made.version = step.version;
    made.decoupled = model.decoupled;
    const size_t index = graph_.steps.size();
    for (const auto& [input, name] : step.inputs) {
      if (model.find_input(input) == nullptr) {
        return invalid_argument(
            fmt::format("in ensemble {}, ensemble tensor {} is mapping to non-existing input {} in model {}",
                        config_.name, name, input, step.model));
      }
    }
    for (const TensorConfig& input : model.inputs) {
      const auto mapped = step.inputs.find(input.name);
      if (mapped == step.inputs.end()) {
        if (input.optional) continue;
        return invalid_argument(
            fmt::format("in ensemble {}, input {} in model {} is not mapped to any ensemble tensors", config_.name,
                        input.name, step.model));
      }
      FW_RETURN_IF_ERROR(agree(mapped->second, belief_of(model, input, false)));
      const size_t at = tensor(mapped->second);
      made.inputs.push_back({input.name, at});
      std::vector<size_t>& consumers = graph_.tensors[at].consumers;
      if (std::find(consumers.begin(), consumers.end(), index) == consumers.end()) {
        consumers.push_back(index);
        ++made.distinct_inputs;
      }
    }
    for (const auto& [output, name] : step.outputs) {
      const TensorConfig* tensor_config = model.find_output(output);
      if (tensor_config == nullptr) {
        return invalid_argument(
            fmt::format("in ensemble {}, ensemble tensor {} is mapped from non-existing output {} in model {}",
                        config_.name, name, output, step.model));
      }
      FW_RETURN_IF_ERROR(agree(name, belief_of(model, *tensor_config, false)));
      made.outputs.push_back({output, tensor(name)});
      made.output_names.push_back(output);
    }
    graph_.steps.push_back(std::move(made));
    return {};
  }

  // In the order in which steps can run; that they all can was found when the configuration was validated.
  Status number_stages() {
    for (size_t input : graph_.inputs) graph_.tensors[input].stage = 0;
    std::vector<bool> done(graph_.steps.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < graph_.steps.size(); ++s) {
        Graph::Step& step = graph_.steps[s];
        const bool ready = std::all_of(step.inputs.begin(), step.inputs.end(), [&](const Graph::Binding& input) {
          return graph_.tensors[input.tensor].stage >= 0;
        });
        if (done[s] || !ready) continue;
        done[s] = progress = true;
        step.stage = step.inputs.empty() ? 0 : graph_.tensors[step.inputs.front().tensor].stage;
        for (const Graph::Binding& input : step.inputs) {
          if (graph_.tensors[input.tensor].stage != step.stage) return different_stages(step.model);
        }
        const int stage = step.decoupled ? graph_.stages++ : step.stage;
        for (const Graph::Binding& output : step.outputs) graph_.tensors[output.tensor].stage = stage;
      }
    }
    graph_.output_stage = graph_.outputs.empty() ? 0 : graph_.tensors[graph_.outputs.front()].stage;
    for (size_t output : graph_.outputs) {
      if (graph_.tensors[output].stage != graph_.output_stage) return different_stages(config_.name);
    }
    return {};
  }

  Status different_stages(const std::string& model) const {
    return invalid_argument(
        fmt::format("in ensemble {}, step of model '{}' receives inputs originated from different decoupled models",
                    config_.name, model));
  }

  const ModelConfig& config_;
  const FindConfig& find_;
  Graph graph_;
  std::map<std::string, size_t> indices_;
  std::map<std::string, Belief> beliefs_;
};

}  // namespace

bool dims_agree(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](int64_t x, int64_t y) { return x == -1 || y == -1 || x == y; });
}

Result<Graph> build_graph(const ModelConfig& config, const FindConfig& find) { return Builder(config, find).build(); }

std::vector<size_t> Graph::make_producers() const {
  std::vector<size_t> producers(tensors.size(), kNone);
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const Binding& output : steps[s].outputs) producers[output.tensor] = s;
  }
  return producers;
}

std::vector<bool> Graph::needed_steps(const std::vector<std::string>& wanted_outputs) const {
  const std::vector<size_t> producers = make_producers();
  std::vector<bool> needed(steps.size());
  std::vector<size_t> todo;
  for (size_t output : outputs) {
    const bool wanted = wanted_outputs.empty() || std::find(wanted_outputs.begin(), wanted_outputs.end(),
                                                            tensors[output].name) != wanted_outputs.end();
    if (wanted) todo.push_back(output);
  }
  while (!todo.empty()) {
    const size_t producer = producers[todo.back()];
    todo.pop_back();
    if (producer == kNone || needed[producer]) continue;
    needed[producer] = true;
    for (const Binding& input : steps[producer].inputs) todo.push_back(input.tensor);
  }
  return needed;
}

}  // namespace flywheel::ensemble
