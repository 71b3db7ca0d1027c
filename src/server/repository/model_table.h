// SPDX-License-Identifier: Apache-2.0
// Which versions of which models there are, in what state, and the loaded ones themselves. Requests read a snapshot;
// loading replaces it, so that a version is swapped for another in one step and no request sees half a change.
// Thread safety: any thread; readers hold a lock only while they copy a pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/repository/served_model.h"

namespace flywheel::repository {

enum class ModelState : uint8_t { kUnknown, kReady, kUnavailable, kLoading, kUnloading };
std::string_view model_state_name(ModelState state);  // "READY"

inline constexpr std::string_view kUnloadedReason = "unloaded";

struct VersionEntry {
  ModelState state = ModelState::kUnknown;
  std::string reason;
  ServedModelPtr model;                  // when ready
  const ServedModel* leaving = nullptr;  // when unloading: which, to be compared only
};

struct ModelEntry {
  std::map<int64_t, VersionEntry> versions;
  // Why there are no versions: the configuration does not parse, for instance. Empty for a model that nobody asked for.
  std::string failure;
};

// A row of the repository's index.
struct IndexRow {
  std::string name;
  int64_t version = -1;  // -1: of the model as a whole
  ModelState state = ModelState::kUnknown;
  std::string reason;
};

class ModelTable {
 public:
  using Models = std::map<std::string, ModelEntry, std::less<>>;

  // `version` < 0: the highest that is ready. Triton's texts: unknown model or version (kNotFound), not ready
  // (kUnavailable).
  Result<ServedModelPtr> find(std::string_view name, int64_t version) const;
  std::vector<ServedModelPtr> ready_models() const;
  std::vector<int64_t> ready_versions(std::string_view name) const;
  std::vector<IndexRow> index(bool ready_only) const;
  // Whether every version is ready or was unloaded on purpose.
  bool all_ready() const;

  // Changes a copy, and puts it in place of the present state.
  void update(const std::function<void(Models&)>& change);
  std::shared_ptr<const Models> snapshot() const {
    std::lock_guard lock(mutex_);
    return models_;
  }

 private:
  mutable std::mutex mutex_;
  std::mutex update_mutex_;
  std::shared_ptr<const Models> models_ = std::make_shared<Models>();
};

}  // namespace flywheel::repository
