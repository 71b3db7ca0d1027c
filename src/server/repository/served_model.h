// SPDX-License-Identifier: Apache-2.0
// One version of one model, loaded and ready: its configuration, what its backend opened, instances and scheduler. The
// repository hands out shared pointers; a request holds one until it is answered, so that a version that is replaced
// serves what it has accepted. Immutable but for what the scheduler does. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/backend/backend.h"
#include "server/config/model_config.h"
#include "server/schedule/request_runner.h"

namespace flywheel::repository {

class ServedModel {
 public:
  struct Parts {
    int64_t version = 0;
    config::ModelConfig config;
    std::shared_ptr<backend::OpenModel> model;  // null: an ensemble
    // What it was made of, to tell a later load what has changed; empty: not known.
    config::ModelConfig written;
    std::string files_state;
    std::unique_ptr<schedule::RequestRunner> runner;
    std::vector<std::vector<std::string>> labels;  // by output, in the configuration's order
    double load_seconds = 0;
  };
  explicit ServedModel(Parts parts);

  const std::string& name() const { return parts_.config.name; }
  int64_t version() const { return parts_.version; }
  const config::ModelConfig& config() const { return parts_.config; }
  const std::string& config_json() const { return config_json_; }
  backend::ModelMemory memory() const { return parts_.model ? parts_.model->memory() : backend::ModelMemory{}; }
  double load_seconds() const { return parts_.load_seconds; }
  schedule::ModelStatistics& statistics() const { return *statistics_; }
  size_t queued_requests() const { return parts_.runner->queued_requests(); }
  // For a load of the same version: what it may take over if `written` differs in its instances alone and the files are
  // the same. Null: nothing.
  std::shared_ptr<backend::OpenModel> model_for(const config::ModelConfig& written,
                                                const std::string& files_state) const;
  std::shared_ptr<schedule::ModelStatistics> shared_statistics() const { return statistics_; }
  // The class's label; nothing when there is none.
  std::optional<std::string_view> label(std::string_view output, size_t index) const;
  std::vector<std::string> labels(std::string_view output) const;

  // Whether the request fits the configuration and what the backend adds to it; makes it ready for infer().
  Status prepare(schedule::InferRequest& request) const;
  // Answers through the request's on_response, exactly once.
  void infer(schedule::RequestPtr request) const { parts_.runner->enqueue(std::move(request)); }
  // Answers all that is queued and takes no more. Blocks.
  void stop(int64_t grace_ns) const { parts_.runner->stop(grace_ns); }

 private:
  const Parts parts_;
  const std::shared_ptr<schedule::ModelStatistics> statistics_;
  const std::string config_json_;
};

using ServedModelPtr = std::shared_ptr<const ServedModel>;

}  // namespace flywheel::repository
