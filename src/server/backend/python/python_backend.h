// SPDX-License-Identifier: Apache-2.0
// Models that are a model.py with a class TritonPythonModel, as Triton's Python backend takes them. Each instance is a
// process of its own. Owned by the model loader. Threads: as backend.h says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/backend/backend.h"

namespace flywheel::python {

struct PythonOptions {
  backend::ModelCaller caller;  // for models that call other models
  std::function<bool(const std::string& model, int64_t version)> is_ready;
};

class PythonBackend : public backend::Backend {
 public:
  explicit PythonBackend(PythonOptions options) : options_(std::move(options)) {}
  Result<std::shared_ptr<backend::OpenModel>> open(const backend::ModelSource& source) const override;

 private:
  const PythonOptions options_;
};

}  // namespace flywheel::python
