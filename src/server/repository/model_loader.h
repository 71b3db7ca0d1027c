// SPDX-License-Identifier: Apache-2.0
// From a version's folder to a model that serves: chooses the backend, has it open the files, completes the
// configuration from that, makes the instances, warms them up. The repository calls it from its loading threads.
// Thread safety: immutable; any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/backend/engine/engine_backend.h"
#include "server/backend/engine/engine_cache.h"
#include "server/backend/native/native_backend.h"
#include "server/backend/python/python_backend.h"
#include "server/config/model_config.h"
#include "server/repository/runner_layers.h"
#include "server/repository/served_model.h"
#include "server/schedule/arbiter.h"

namespace flywheel::repository {

// By output, in the configuration's order; empty without a file.
Result<std::vector<std::vector<std::string>>> read_label_files(const config::ModelConfig& config,
                                                               const std::string& model_folder);

struct LoaderOptions {
  engines::EngineCacheOptions engines;
  bool auto_complete = true;  // false: config.pbtxt has to say everything
  int threads = 0;            // of each execution context
  schedule::DeviceArbiter* arbiter = nullptr;
  std::shared_ptr<schedule::ResponseCache> cache;  // null: none
  RateLimits rate_limits;
  python::PythonOptions python;
  std::string backend_folder;  // of native backends; may be empty
};

class ModelLoader {
 public:
  explicit ModelLoader(LoaderOptions options)
      : options_(options),
        engines_(options.engines, options.threads),
        python_(options.python),
        native_(options.backend_folder) {}

  // `parsed`: the model's configuration as written. The message of a failure says what about which file.
  // `previous`: the same version as it serves now, or null. Where only its instances change, what it has opened is
  // used again: nothing is read, and its statistics go on.
  Result<std::unique_ptr<ServedModel>> load(const config::ModelConfig& parsed, const std::string& model_folder,
                                            int64_t version, const std::function<bool()>& keep_going,
                                            const ServedModelPtr& previous = nullptr) const;

 private:
  const backend::Backend& choose_backend(const config::ModelConfig& parsed, const std::string& version_folder) const;

  const LoaderOptions options_;
  const engines::EngineBackend engines_;
  const python::PythonBackend python_;
  const native::NativeBackend native_;
};

}  // namespace flywheel::repository
