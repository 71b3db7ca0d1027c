// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/batch_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "server/schedule/policies/direct_policy.h"
#include "server/schedule/policies/triton_policy.h"
#include "server/schedule/queue.h"

namespace flywheel::schedule {
namespace {

constexpr int64_t kDefaultAgingUs = 10'000'000;

// A model's parameters are strings; this one is a number of microseconds.
Result<int64_t> aging_ns(const config::ModelConfig& config) {
  constexpr int64_t kMaxUs = kNever / 1000 / 4;
  int64_t us = kDefaultAgingUs;
  if (auto it = config.parameters.find("priority_aging_microseconds"); it != config.parameters.end()) {
    const std::string& text = it->second;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), us);
    if (error != std::errc() || end != text.data() + text.size() || us < 0 || us > kMaxUs)
      return invalid_argument(fmt::format(
          "parameter 'priority_aging_microseconds' of model '{}' is '{}', but must be a number of microseconds "
          "(0: lower priority levels may starve)",
          config.name, text));
  }
  return us * 1000;
}

using PolicyResult = Result<std::unique_ptr<BatchPolicy>>;

PolicyResult make_direct(const config::ModelConfig&, const PolicyOptions& options) {
  return PolicyResult(std::make_unique<DirectPolicy>(options));
}

PolicyResult make_triton(const config::ModelConfig& config, const PolicyOptions& options) {
  FW_ASSIGN_OR_RETURN(const int64_t aging, aging_ns(config));
  const config::DynamicBatching batching = config.dynamic_batching.value_or(config::DynamicBatching{});
  return PolicyResult(std::make_unique<TritonPolicy>(batching, config.max_batch_size, aging, options,
                                                     config.batching_options.skips_other_shapes));
}

struct PolicyRow {
  std::string_view name;
  PolicyResult (*make)(const config::ModelConfig&, const PolicyOptions&);
};

constexpr PolicyRow kPolicies[] = {
    {"direct", make_direct},
    {"triton", make_triton},
};

}  // namespace

Result<std::unique_ptr<BatchPolicy>> make_policy(const config::ModelConfig& config, const PolicyOptions& options) {
  std::string_view wanted = config.dynamic_batching ? "triton" : "direct";
  if (auto it = config.parameters.find("batch_policy"); it != config.parameters.end()) wanted = it->second;
  for (const PolicyRow& row : kPolicies)
    if (row.name == wanted) return row.make(config, options);
  std::vector<std::string_view> names;
  for (const PolicyRow& row : kPolicies) names.push_back(row.name);
  return invalid_argument(fmt::format("parameter 'batch_policy' of model '{}' is '{}', but the policies are: {}",
                                      config.name, wanted, fmt::join(names, ", ")));
}

bool decide_removals(const PolicyInput& input, Decision& decision) {
  const RequestQueue& queue = *input.queue;
  if (queue.any_cancelled()) {
    decision.action = Decision::Action::kCancel;
    decision.requests = queue.cancelled();
    return true;
  }
  decision.wait_until_ns = queue.next_expiry_ns();
  if (decision.wait_until_ns > input.now_ns) return false;
  // Requests to be rejected and requests to be put last are different decisions: this call makes one of them.
  const std::vector<InferRequest*> expired = queue.expired(input.now_ns);
  const config::TimeoutAction action = queue.timeout_action(expired.front()->place.level);
  decision.action = action == config::TimeoutAction::kDelay ? Decision::Action::kDelay : Decision::Action::kExpire;
  std::copy_if(expired.begin(), expired.end(), std::back_inserter(decision.requests),
               [&](InferRequest* request) { return queue.timeout_action(request->place.level) == action; });
  return true;
}

}  // namespace flywheel::schedule
