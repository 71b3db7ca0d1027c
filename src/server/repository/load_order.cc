// SPDX-License-Identifier: Apache-2.0
#include "server/repository/load_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace flywheel::repository {

LoadOrder::LoadOrder(const std::vector<std::string>& models, const Needs& needs) {
  for (const std::string& model : models) nodes_[model];
  for (auto& [model, node] : nodes_) {
    for (const std::string& need : needs(model)) {
      if (nodes_.contains(need) && std::find(node.needs.begin(), node.needs.end(), need) == node.needs.end())
        node.needs.push_back(need);
    }
  }
  find_circles();
  for (auto& [model, node] : nodes_) {
    if (!node.problem.is_ok()) continue;
    for (const std::string& need : node.needs) {
      ++node.waits;
      nodes_[need].dependents.push_back(model);
    }
  }
}

void LoadOrder::find_circles() {
  for (auto& [model, node] : nodes_) {
    std::set<std::string> seen;
    std::vector<std::string> todo{model};
    while (!todo.empty() && node.problem.is_ok()) {
      const std::string at = todo.back();
      todo.pop_back();
      for (const std::string& need : nodes_[at].needs) {
        if (need == model) {
          node.problem = invalid_argument(
              fmt::format("circular dependency between ensembles: {} -> ... -> {} -> {}", model, at, model));
          break;
        }
        if (seen.insert(need).second) todo.push_back(need);
      }
    }
  }
}

std::vector<std::string> LoadOrder::first() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> ready;
  for (const auto& [model, node] : nodes_) {
    if (node.waits == 0) ready.push_back(model);
  }
  return ready;
}

std::vector<std::string> LoadOrder::after(const std::string& model) {
  std::lock_guard lock(mutex_);
  std::vector<std::string> ready;
  for (const std::string& dependent : nodes_[model].dependents) {
    if (--nodes_[dependent].waits == 0) ready.push_back(dependent);
  }
  return ready;
}

Status LoadOrder::problem(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto node = nodes_.find(model);
  return node == nodes_.end() ? Status() : node->second.problem;
}

}  // namespace flywheel::repository
