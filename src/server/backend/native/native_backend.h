// SPDX-License-Identifier: Apache-2.0
// Models that a shared library runs through flywheel/backend.h. Libraries are loaded when their first model is opened
// and closed with the last one. Owned by the model loader. Threads: as backend.h says.
#pragma once

#include <memory>
#include <string>

#include "server/backend/backend.h"

namespace flywheel::native {

class NativeBackend : public backend::Backend {
 public:
  // `folder`: of libraries for all models; may be empty.
  explicit NativeBackend(std::string folder) : folder_(std::move(folder)) {}
  Result<std::shared_ptr<backend::OpenModel>> open(const backend::ModelSource& source) const override;

 private:
  Result<std::string> find_library(const backend::ModelSource& source) const;

  const std::string folder_;
};

}  // namespace flywheel::native
