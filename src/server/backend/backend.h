// SPDX-License-Identifier: Apache-2.0
// The door between a model's files and what executes its batches. A backend opens one version of a model; the open
// model says what completes its configuration, makes its instances, and checks requests as far as the configuration
// cannot. The model loader chooses the backend; the served model keeps the open model until its last request is
// answered. Threads: open() and configure() from a loading thread; the rest of an open model from any thread once
// configured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/config/model_description.h"
#include "server/schedule/batch_executor.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/request.h"

namespace flywheel::backend {

// Hands a request to another model of the same server, for models that call models. Whatever happens, the request's
// on_response is called with a final response, from any thread. `version` < 0: the newest that is ready.
using ModelCaller = std::function<void(std::string_view model, int64_t version, schedule::RequestPtr request)>;

struct ModelSource {
  const config::ModelConfig& parsed;  // as written
  std::string model_folder;
  int64_t version = 1;
  bool auto_complete = true;         // false: config.pbtxt says everything
  std::function<bool()> keep_going;  // false: the server stops; give up soon, with kCancelled

  std::string version_folder() const { return model_folder + "/" + std::to_string(version); }
};

struct ModelMemory {
  uint64_t weights_bytes = 0;  // of the model, shared by its instances
  uint64_t arena_bytes = 0;    // of each instance
  uint64_t workspace_bytes = 0;

  uint64_t total_bytes(uint64_t instances) const { return weights_bytes + instances * (arena_bytes + workspace_bytes); }
};

class OpenModel {
 public:
  virtual ~OpenModel() = default;
  virtual config::ModelDescription description() const = 0;
  // The configuration as the model itself has added to it; null: as it was written.
  virtual const config::ModelConfig* written() const { return nullptr; }
  // The completed configuration, once, before anything below is called.
  virtual Status configure(const config::ModelConfig& config) = 0;
  // Called for each index below the configuration's instance_count(). Instances keep what they need of the model.
  virtual Result<std::unique_ptr<schedule::BatchExecutor>> create_instance(int index) = 0;
  // Of a request that fits the configuration, as check_request() leaves it.
  virtual Status check(const schedule::InferRequest&) const { return {}; }
  virtual ModelMemory memory() const { return {}; }
  virtual schedule::LatencyCurve latency_curve() const { return {}; }
  // Whether its instances compute on the cores that the server's arbiter shares out. One that may wait for other models
  // must not.
  virtual bool uses_arbiter() const { return false; }
  // Whether more instances may be made after the first set, for a version of the same files and another
  // instance_group; from one thread at a time.
  virtual bool makes_more_instances() const { return false; }
  // A batch that runs longer is given up; 0: never.
  virtual int64_t execution_timeout_ns() const { return 120'000'000'000; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  // The message of a failure says what about which file.
  virtual Result<std::shared_ptr<OpenModel>> open(const ModelSource& source) const = 0;
};

}  // namespace flywheel::backend
