// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/json.h"
#include "base/mapped_file.h"
#include "server/backend/engine/engine_cache.h"

namespace flywheel::repository {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 16;
constexpr size_t kMaxFiles = 20'000;  // of a model; further ones are not watched
constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr size_t kMaxLabelBytes = 64 << 20;

template <class F>
Status for_each_folder(const std::string& path, F&& f) {
  std::error_code error;
  fs::directory_iterator entries(path, error);
  if (error) return not_found(fmt::format("cannot read the folder '{}': {}", path, error.message()));
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) break;
    std::error_code ignored;
    if (entries->is_directory(ignored)) f(entries->path().filename().string(), entries->path().string());
  }
  if (error) return not_found(fmt::format("cannot read the folder '{}': {}", path, error.message()));
  return {};
}

}  // namespace

bool is_model_name(std::string_view name) {
  // Names go into messages, metrics and the log as they are.
  const bool is_printable = std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 127; });
  return !name.empty() && name.front() != '.' && name.size() <= 255 && is_printable && is_valid_utf8(name) &&
         name.find_first_of("/\\") == std::string_view::npos;
}

Result<std::map<std::string, std::vector<std::string>>> find_models(const std::vector<std::string>& repositories) {
  std::map<std::string, std::vector<std::string>> models;
  for (const std::string& repository : repositories) {
    Status status = for_each_folder(repository, [&](const std::string& name, const std::string& path) {
      if (is_model_name(name)) models[name].push_back(path);
    });
    if (!status.is_ok()) return Status(status.code(), "model repository: " + status.message());
  }
  return models;
}

Result<std::vector<int64_t>> find_versions(const std::string& model_folder) {
  std::vector<int64_t> versions;
  FW_RETURN_IF_ERROR(for_each_folder(model_folder, [&](const std::string& name, const std::string&) {
    int64_t version = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), version);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
    if (whole && version > 0 && name.front() != '0') versions.push_back(version);
  }));
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::string state_of_files(const std::string& folder, std::string_view ignored) {
  std::vector<std::string> lines;
  std::set<std::pair<dev_t, ino_t>> seen;
  if (struct stat state{}; ::stat(folder.c_str(), &state) == 0) seen.insert({state.st_dev, state.st_ino});
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entry != fs::recursive_directory_iterator() && lines.size() < kMaxFiles; entry.increment(error)) {
    if (entry.depth() >= kMaxDepth) entry.disable_recursion_pending();
    const std::string name = entry->path().filename().string();
    if (engines::EngineCache::is_own_file(name) || (entry.depth() == 0 && name == ignored)) continue;
    struct stat state {};
    if (::stat(entry->path().c_str(), &state) != 0) continue;
    // Links may lead to a folder that holds them.
    if (S_ISDIR(state.st_mode) && !seen.insert({state.st_dev, state.st_ino}).second) entry.disable_recursion_pending();
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

Result<std::string> read_config_file(const std::string& model_folder) {
  const std::string path = model_folder + "/config.pbtxt";
  Result<std::string> text = read_text_file(path, kMaxConfigBytes);
  if (!text.is_ok() && text.status().code() == Code::kNotFound) return std::string();
  return text;
}

Result<std::vector<std::string>> read_labels(const std::string& path) {
  FW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxLabelBytes));
  std::vector<std::string> labels;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string label = text.substr(begin, end - begin);
    if (!label.empty() && label.back() == '\r') label.pop_back();
    labels.push_back(std::move(label));
    begin = end + 1;
  }
  return labels;
}

}  // namespace flywheel::repository
