// SPDX-License-Identifier: Apache-2.0
// What can be wrong with an ensemble's configuration by itself: steps that are not connected, tensors that nobody
// reads. What has to agree with the models is checked when the ensemble is loaded.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "server/config/config_reader.h"
#include "server/config/parse_config.h"

namespace flywheel::config {
namespace {

using Message = inference::ModelConfig;

struct Node {
  bool is_output = false;  // of a step
  bool ready = false;
  std::vector<Node*> from;
  std::vector<Node*> to;
  std::string name;
};
using Nodes = std::map<std::string, Node>;

Node& node(Nodes& nodes, const std::string& name) {
  Node& found = nodes[name];
  found.name = name;
  return found;
}

Status add_steps(const Message& message, Nodes& nodes) {
  const std::string& name = message.name();
  int index = 0;
  for (const auto& step : message.ensemble_scheduling().step()) {
    const std::string where = fmt::format("in step {} of ensemble '{}'", index, name);
    if (step.model_name().empty()) return invalid_argument("must specify 'model_name' " + where);
    if (!step.model_namespace().empty())
      return unsupported(
          fmt::format("'model_namespace' {} is not supported: model names are unique; remove it", where));
    if (step.input_map().empty()) return invalid_argument("must specify 'input_map' " + where);
    if (step.output_map().empty()) return invalid_argument("must specify 'output_map' " + where);
    std::vector<Node*> outputs;
    for (const auto& [output, tensor] : step.output_map()) {
      Node& found = node(nodes, tensor);
      if (found.is_output)
        return invalid_argument(
            fmt::format("ensemble tensor '{}' can appear in an output map only once for ensemble '{}' step {}", tensor,
                        name, index));
      found.is_output = true;
      outputs.push_back(&found);
    }
    for (const auto& [input, tensor] : step.input_map()) {
      Node& found = node(nodes, tensor);
      for (Node* output : outputs) {
        output->from.push_back(&found);
        found.to.push_back(output);
      }
    }
    ++index;
  }
  return Status::ok();
}

Status not_written(const std::string& output, const std::string& ensemble, const Node& start) {
  std::string text = fmt::format("output '{}' for ensemble '{}' is not written", output, ensemble);
  const Node* last = &start;
  std::set<const Node*> seen;
  for (const Node* at = &start; at != nullptr;) {
    const Node* next = nullptr;
    for (const Node* from : at->from) {
      if (from->ready || !seen.insert(from).second) continue;
      next = last = from;
      break;
    }
    at = next;
  }
  if (last->name != start.name)
    text += fmt::format(": at least one of its depending tensors, '{}', is not connected", last->name);
  return invalid_argument(text);
}

}  // namespace

Status validate_ensemble(const Message& message) {
  const std::string& name = message.name();
  if (message.platform() != "ensemble")
    return invalid_argument(
        fmt::format("ensemble scheduling cannot be set for model '{}' whose platform is not ensemble", name));
  if (!message.instance_group().empty())
    return invalid_argument(fmt::format("instance group should not be specified for ensemble '{}'", name));
  if (message.has_optimization())
    return invalid_argument(fmt::format("optimization should not be specified for ensemble '{}'", name));
  if (!message.model_warmup().empty())
    return invalid_argument(fmt::format("model_warmup can not be specified for ensemble '{}'", name));
  if (message.ensemble_scheduling().step().empty())
    return invalid_argument(fmt::format("must specify 'step' for ensemble '{}'", name));
  if (message.input().empty()) return invalid_argument(fmt::format("must specify 'input' for ensemble '{}'", name));
  if (message.output().empty()) return invalid_argument(fmt::format("must specify 'output' for ensemble '{}'", name));
  Nodes nodes;
  FW_RETURN_IF_ERROR(add_steps(message, nodes));

  std::deque<Node*> ready;
  for (const auto& input : message.input()) {
    const auto found = nodes.find(input.name());
    if (found == nodes.end())
      return invalid_argument(fmt::format("ensemble input '{}' for ensemble {}' is not used", input.name(), name));
    found->second.ready = true;
    ready.push_back(&found->second);
  }
  for (; !ready.empty(); ready.pop_front()) {
    for (Node* next : ready.front()->to) {
      if (next->ready || !std::all_of(next->from.begin(), next->from.end(), [](const Node* n) { return n->ready; }))
        continue;
      next->ready = true;
      ready.push_back(next);
    }
  }
  std::set<std::string> outputs;
  for (const auto& output : message.output()) {
    const auto found = nodes.find(output.name());
    if (found == nodes.end())
      return invalid_argument(fmt::format("ensemble output '{}' for ensemble {}' is not used", output.name(), name));
    if (!found->second.ready) return not_written(output.name(), name, found->second);
    outputs.insert(output.name());
  }
  for (const auto& [tensor, found] : nodes) {
    if (outputs.contains(tensor) || (found.ready && !found.to.empty())) continue;
    return invalid_argument(fmt::format("ensemble tensor '{}' is unused in ensemble '{}'", tensor, name));
  }
  return Status::ok();
}

Result<ModelConfig> complete_ensemble(const ModelConfig& parsed, bool decoupled) {
  auto message = std::make_shared<Message>(*parsed.message);
  message->mutable_model_transaction_policy()->set_decoupled(decoupled);
  FW_RETURN_IF_ERROR(validate_message(*message));
  return read_message(std::move(message));
}

}  // namespace flywheel::config
