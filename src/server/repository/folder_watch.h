// SPDX-License-Identifier: Apache-2.0
// Which models' folders have changed since they were last looked at, for polling. A change counts once the folder has
// looked the same twice, so that what is still being written is left alone. Engines that this server builds beside ONNX
// files do not count. Owned and called by the repository's polling thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::repository {

class FolderWatch {
 public:
  explicit FolderWatch(std::vector<std::string> repositories) : repositories_(std::move(repositories)) {}

  struct Changes {
    std::vector<std::string> changed;  // and new ones
    std::vector<std::string> removed;
    bool is_unsettled = false;  // something changed since the last look: look again soon
  };
  // The folders as they are count as known. A repository that cannot be read keeps what was known of it.
  void adopt();
  // What has changed; it is known from then on, whether or not it loads.
  Result<Changes> look();

 private:
  struct Folder {
    std::string known, seen;
  };
  Result<std::map<std::string, std::string>> states() const;

  const std::vector<std::string> repositories_;
  std::map<std::string, Folder> folders_;  // by model
};

}  // namespace flywheel::repository
