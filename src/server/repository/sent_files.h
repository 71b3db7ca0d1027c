// SPDX-License-Identifier: Apache-2.0
// A model's files that came with a load request, laid out in a folder of their own in place of the one in the
// repository. Kept by the versions that were loaded from it, and removed with the last. Any thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "flywheel/status.h"

namespace flywheel::repository {

class SentFiles {
 public:
  // `files`: content by path within the model's folder, as "1/model.onnx". kInvalidArgument names a path that leads out
  // of it or cannot be a file's; kUnavailable when the disk does not take them. Then nothing is left.
  static Result<std::shared_ptr<SentFiles>> write(const std::map<std::string, std::string>& files);
  ~SentFiles();
  SentFiles(const SentFiles&) = delete;
  SentFiles& operator=(const SentFiles&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  explicit SentFiles(std::string folder) : folder_(std::move(folder)) {}
  const std::string folder_;
};

}  // namespace flywheel::repository
