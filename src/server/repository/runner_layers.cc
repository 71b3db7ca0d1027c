// SPDX-License-Identifier: Apache-2.0
#include "server/repository/runner_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/schedule/caching_runner.h"
#include "server/schedule/padding_runner.h"
#include "server/schedule/splitting_runner.h"

namespace flywheel::repository {

std::unique_ptr<schedule::RequestRunner> add_layers(const config::ModelConfig& config,
                                                    std::unique_ptr<schedule::RequestRunner> runner,
                                                    std::function<Status(const schedule::InferRequest&)> check,
                                                    const std::shared_ptr<schedule::ResponseCache>& cache) {
  // Parts of a request are padded, and the whole of it is remembered.
  if (!config.batching_options.length_buckets.empty() && !config.sequence_batching && !config.decoupled)
    runner = std::make_unique<schedule::PaddingRunner>(config, std::move(runner), std::move(check));
  if (config.batching_options.splits_large_requests)
    runner = std::make_unique<schedule::SplittingRunner>(config, std::move(runner));
  if (!config.response_cache || config.sequence_batching || config.decoupled) return runner;
  if (cache == nullptr) {
    log(LogLevel::kWarning,
        "model '{}' enables response_cache, but the server has no cache: give it one with --cache-config local,size=N",
        config.name);
    return runner;
  }
  return std::make_unique<schedule::CachingRunner>(std::move(runner), cache);
}

Result<schedule::DeviceArbiter::Needs> needs_of(const config::ModelConfig& config, const RateLimits& limits,
                                                bool uses_device, const schedule::DeviceArbiter* arbiter) {
  schedule::DeviceArbiter::Needs needs;
  needs.needs_slot = uses_device;
  if (!limits.enabled || config.instance_groups.empty()) return needs;
  const config::InstanceGroup& first = config.instance_groups.front();
  const auto same = [](const config::RateResource& a, const config::RateResource& b) {
    return a.name == b.name && a.global == b.global && a.count == b.count;
  };
  for (const config::InstanceGroup& group : config.instance_groups) {
    if (group.rate_priority == first.rate_priority &&
        std::equal(group.rate_resources.begin(), group.rate_resources.end(), first.rate_resources.begin(),
                   first.rate_resources.end(), same))
      continue;
    return unsupported(fmt::format(
        "instance group {} of model {} has another rate_limiter than {}: all groups of a model need the same one here",
        group.name, config.name, first.name));
  }
  needs.turn_cost = std::max<uint32_t>(first.rate_priority, 1);
  for (const config::RateResource& resource : first.rate_resources) {
    if (resource.name.empty())
      return invalid_argument(fmt::format("a rate_limiter resource of model {} must have a name", config.name));
    if (resource.count > 0) needs.resources[resource.name] += resource.count;
  }
  if (arbiter != nullptr) FW_RETURN_IF_ERROR(arbiter->check(needs));
  return needs;
}

}  // namespace flywheel::repository
