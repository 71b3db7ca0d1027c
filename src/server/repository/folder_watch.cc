// SPDX-License-Identifier: Apache-2.0
#include "server/repository/folder_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "server/backend/engine/engine_cache.h"
#include "server/repository/model_folder.h"

namespace flywheel::repository {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 16;
constexpr size_t kMaxFiles = 100'000;  // of a model; further ones are not watched

// A line for each file: its name, and what changes when it is written or replaced.
std::string state_of(const std::string& folder) {
  std::vector<std::string> lines;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entry != fs::recursive_directory_iterator() && lines.size() < kMaxFiles; entry.increment(error)) {
    if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
    if (engines::EngineCache::is_own_file(entry->path().filename().string())) continue;
    struct stat state {};
    if (::stat(entry->path().c_str(), &state) != 0) continue;
    // A folder's own time changes with what is left out.
    lines.push_back(S_ISDIR(state.st_mode) ? entry->path().string()
                                           : fmt::format("{} {} {} {}.{}", entry->path().string(), state.st_ino,
                                                         state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

Result<std::map<std::string, std::string>> FolderWatch::states() const {
  FW_ASSIGN_OR_RETURN(const auto found, find_models(repositories_));
  std::map<std::string, std::string> states;
  for (const auto& [name, folders] : found) {
    // Not empty, whatever the folder has: it is there.
    std::string& state = states[name] = "folder\n";
    for (const std::string& folder : folders) state += state_of(folder);
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
