// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_table.h"

#include <fmt/format.h>

#include <utility>

namespace flywheel::repository {

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kReady: return "READY";
    case ModelState::kUnavailable: return "UNAVAILABLE";
    case ModelState::kLoading: return "LOADING";
    case ModelState::kUnloading: return "UNLOADING";
    case ModelState::kUnknown: break;
  }
  return "UNKNOWN";
}

Result<ServedModelPtr> ModelTable::find(std::string_view name, int64_t version) const {
  const std::shared_ptr<const Models> models = snapshot();
  const auto model = models->find(name);
  if (model == models->end() || (model->second.versions.empty() && model->second.failure.empty())) {
    return not_found(fmt::format("Request for unknown model: '{}' is not found", name));
  }
  const auto& versions = model->second.versions;
  if (version < 0) {
    for (auto entry = versions.rbegin(); entry != versions.rend(); ++entry) {
      if (entry->second.state == ModelState::kReady) return entry->second.model;
    }
    return not_found(fmt::format("Request for unknown model: '{}' has no available versions", name));
  }
  const auto entry = versions.find(version);
  if (entry == versions.end()) {
    return not_found(fmt::format("Request for unknown model: '{}' version {} is not found", name, version));
  }
  if (entry->second.state != ModelState::kReady) {
    return unavailable(fmt::format("Request for unknown model: '{}' version {} is not at ready state", name, version));
  }
  return entry->second.model;
}

std::vector<ServedModelPtr> ModelTable::ready_models() const {
  std::vector<ServedModelPtr> found;
  const std::shared_ptr<const Models> models = snapshot();
  for (const auto& [name, model] : *models) {
    for (const auto& [version, entry] : model.versions) {
      if (entry.state == ModelState::kReady) found.push_back(entry.model);
    }
  }
  return found;
}

std::vector<int64_t> ModelTable::ready_versions(std::string_view name) const {
  std::vector<int64_t> found;
  const std::shared_ptr<const Models> models = snapshot();
  const auto model = models->find(name);
  if (model == models->end()) return found;
  for (const auto& [version, entry] : model->second.versions) {
    if (entry.state == ModelState::kReady) found.push_back(version);
  }
  return found;
}

std::vector<IndexRow> ModelTable::index(bool ready_only) const {
  std::vector<IndexRow> rows;
  const std::shared_ptr<const Models> models = snapshot();
  for (const auto& [name, model] : *models) {
    if (model.versions.empty() && !ready_only) {
      rows.push_back(
          {name, -1, model.failure.empty() ? ModelState::kUnknown : ModelState::kUnavailable, model.failure});
    }
    for (const auto& [version, entry] : model.versions) {
      if (!ready_only || entry.state == ModelState::kReady) rows.push_back({name, version, entry.state, entry.reason});
    }
  }
  return rows;
}

bool ModelTable::all_ready() const {
  const std::shared_ptr<const Models> models = snapshot();
  for (const auto& [name, model] : *models) {
    if (!model.failure.empty()) return false;
    for (const auto& [version, entry] : model.versions) {
      // What goes on request, or because a newer version has come, leaves nothing to wait for.
      const bool goes = entry.state == ModelState::kUnloading || entry.reason == kUnloadedReason;
      if (entry.state != ModelState::kReady && !goes) return false;
    }
  }
  return true;
}

void ModelTable::update(const std::function<void(Models&)>& change) {
  std::lock_guard lock(update_mutex_);
  auto changed = std::make_shared<Models>(*snapshot());
  change(*changed);
  std::shared_ptr<const Models> old = std::move(changed);
  {
    std::lock_guard swap_lock(mutex_);
    models_.swap(old);
  }
  // `old`, and with it what only it held, goes without the readers' lock.
}

}  // namespace flywheel::repository
