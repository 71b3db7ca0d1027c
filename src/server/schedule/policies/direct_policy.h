// SPDX-License-Identifier: Apache-2.0
// First come, first served, each request a batch of its own: for models without dynamic batching.
// Thread safety: stateless.
#pragma once

#include "server/schedule/batch_policy.h"

namespace flywheel::schedule {

class DirectPolicy : public BatchPolicy {
 public:
  explicit DirectPolicy(const PolicyOptions& options) : options_(options) {}
  std::string_view name() const override { return "direct"; }
  Decision decide(const PolicyInput& input) const override;

 private:
  PolicyOptions options_;
};

}  // namespace flywheel::schedule
