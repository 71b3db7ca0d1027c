// SPDX-License-Identifier: Apache-2.0
// What a model's configuration and the server's options put before its scheduler, and what they ask of the arbiter.
// The loaders call it. Thread safety: pure functions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/arbiter.h"
#include "server/schedule/request_runner.h"
#include "server/schedule/response_cache.h"

namespace flywheel::repository {

struct RateLimits {
  bool enabled = false;                       // --rate-limit execution_count
  std::map<std::string, uint32_t> resources;  // --rate-limit-resource
};

// Response cache, splitting of large requests and padding to length buckets, as far as the model asks for them.
// `check`: whether the model takes a padded request; may be empty.
std::unique_ptr<schedule::RequestRunner> add_layers(const config::ModelConfig& config,
                                                    std::unique_ptr<schedule::RequestRunner> runner,
                                                    std::function<Status(const schedule::InferRequest&)> check,
                                                    const std::shared_ptr<schedule::ResponseCache>& cache);

// Of each execution of the model; an error when its rate limits make no sense here.
Result<schedule::DeviceArbiter::Needs> needs_of(const config::ModelConfig& config, const RateLimits& limits,
                                                bool uses_device, const schedule::DeviceArbiter* arbiter);

}  // namespace flywheel::repository
