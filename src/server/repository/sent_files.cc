// SPDX-License-Identifier: Apache-2.0
#include "server/repository/sent_files.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace flywheel::repository {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 10'000;
constexpr size_t kMaxPathBytes = 1024;

Status check_path(const std::string& path) {
  auto refuse = [&](std::string_view why) {
    return invalid_argument(
        fmt::format("load parameter 'file:{}': {}; give a path within the model's folder, such as "
                    "file:1/model.onnx",
                    path, why));
  };
  if (path.empty()) return refuse("it names no file");
  if (path.size() > kMaxPathBytes) return refuse("the path is too long");
  if (path.find_first_of(std::string_view("\\\0", 2)) != std::string::npos)
    return refuse("it has a character that no path may have");
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty()) return refuse("it is absolute or has an empty part");
    if (part == "." || part == "..") return refuse("it leads out of the folder");
    begin = end + 1;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<SentFiles>> SentFiles::write(const std::map<std::string, std::string>& files) {
  if (files.size() > kMaxFiles) {
    return invalid_argument(
        fmt::format("{} files came with the load request; {} at most are taken", files.size(), kMaxFiles));
  }
  for (const auto& [path, content] : files) FW_RETURN_IF_ERROR(check_path(path));
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "flywheel-model-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return unavailable("there is no folder for the model's files: set TMPDIR to one that can be written to");
  }
  std::shared_ptr<SentFiles> made(new SentFiles(pattern));
  for (const auto& [path, content] : files) {
    const fs::path file = fs::path(pattern) / path;
    fs::create_directories(file.parent_path(), error);
    std::ofstream out(file, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (error || !out) {
      return unavailable(
          fmt::format("'{}' of the model's files cannot be written below '{}': the disk may be full, or another file "
                      "has the name of its folder",
                      path, fs::temp_directory_path(error).string()));
    }
  }
  return made;
}

SentFiles::~SentFiles() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace flywheel::repository
