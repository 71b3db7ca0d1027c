// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/policies/direct_policy.h"

#include "server/schedule/queue.h"

namespace flywheel::schedule {

Decision DirectPolicy::decide(const PolicyInput& input) const {
  Decision decision;
  if (decide_removals(input, decision)) return decision;
  const bool held = input.queue->pushed() < options_.hold_until_queued && !input.device.draining;
  if (input.queue->empty() || input.device.idle_instances == 0 || held) return decision;
  decision.action = Decision::Action::kDispatch;
  input.queue->visit([&](InferRequest& request) {
    decision.requests.push_back(&request);
    return false;
  });
  return decision;
}

}  // namespace flywheel::schedule
