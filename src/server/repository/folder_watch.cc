// SPDX-License-Identifier: Apache-2.0
#include "server/repository/folder_watch.h"

#include <algorithm>

#include "server/repository/model_folder.h"

namespace flywheel::repository {
Result<std::map<std::string, std::string>> FolderWatch::states() const {
  FW_ASSIGN_OR_RETURN(const auto found, find_models(repositories_));
  std::map<std::string, std::string> states;
  for (const auto& [name, folders] : found) {
    // Not empty, whatever the folder has: it is there.
    std::string& state = states[name] = "folder\n";
    for (const std::string& folder : folders) state += state_of_files(folder);
  }
  return states;
}

void FolderWatch::adopt() {
  const auto now = states();
  if (!now.is_ok()) return;
  for (const auto& [name, state] : *now) folders_[name] = {state, state};
}

Result<FolderWatch::Changes> FolderWatch::look() {
  FW_ASSIGN_OR_RETURN(auto now, states());
  Changes changes;
  for (const auto& [name, folder] : folders_) now.try_emplace(name);  // gone: an empty state
  for (auto& [name, state] : now) {
    Folder& folder = folders_[name];
    if (state == folder.known) {
      folder.seen = state;
    } else if (state != folder.seen) {
      folder.seen = state;
      changes.is_unsettled = true;
    } else {
      folder.known = state;
      (state.empty() ? changes.removed : changes.changed).push_back(name);
    }
  }
  std::erase_if(folders_, [](const auto& item) { return item.second.known.empty() && item.second.seen.empty(); });
  return changes;
}

}  // namespace flywheel::repository
