// SPDX-License-Identifier: Apache-2.0
// In which order a set of models may be loaded, when some are made of others: an ensemble after its steps' models. The
// repository makes one for what it loads together. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::repository {

class LoadOrder {
 public:
  // The names of the models that one is made of. Those outside of the set are not waited for.
  using Needs = std::function<std::vector<std::string>(const std::string& model)>;
  LoadOrder(const std::vector<std::string>& models, const Needs& needs);

  size_t size() const { return nodes_.size(); }
  // Those that wait for none.
  std::vector<std::string> first() const;
  // `model` was loaded or failed to: those that waited for nothing else.
  std::vector<std::string> after(const std::string& model);
  // Not ok when a model is made of itself, through whichever others. Such a model waits for none.
  Status problem(const std::string& model) const;

 private:
  struct Node {
    std::vector<std::string> needs;
    std::vector<std::string> dependents;
    size_t waits = 0;
    Status problem;
  };
  void find_circles();

  mutable std::mutex mutex_;
  std::map<std::string, Node> nodes_;
};

}  // namespace flywheel::repository
