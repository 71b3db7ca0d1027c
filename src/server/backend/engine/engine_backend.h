// SPDX-License-Identifier: Apache-2.0
// Models that this server's own engines run: model.engine, or model.onnx, which is compiled when it is first loaded.
// Owned by the model loader. Threads: as backend.h says.
#pragma once

#include <memory>

#include "server/backend/backend.h"
#include "server/backend/engine/engine_cache.h"

namespace flywheel::engines {

class EngineBackend : public backend::Backend {
 public:
  // `threads`: of each execution context.
  EngineBackend(EngineCacheOptions options, int threads) : options_(options), cache_(options), threads_(threads) {}
  Result<std::shared_ptr<backend::OpenModel>> open(const backend::ModelSource& source) const override;

 private:
  const EngineCacheOptions options_;
  const EngineCache cache_;
  const int threads_;
};

}  // namespace flywheel::engines
