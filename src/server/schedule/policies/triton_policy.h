// SPDX-License-Identifier: Apache-2.0
// The batching that config.pbtxt's dynamic_batching describes, as users of Triton know it: preferred sizes, a delay,
// priority levels. Served strictly by level and order of arrival, so the first request that does not fit closes the
// batch. A batch is formed when an instance can run it and not before: what arrives while the instances are busy joins
// it up to the last moment, stays subject to its time limit and to cancellation, and is counted in its queue. Thread
// safety: immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "server/schedule/batch_policy.h"

namespace flywheel::schedule {

class TritonPolicy : public BatchPolicy {
 public:
  // `aging_ns`: a request of a lower level that has waited so long leads every eighth batch, so that no level starves
  // while the first keeps at least seven eighths of the batches. 0: never.
  // `skips_other_shapes`: what does not fit the first request's shape is passed over, not the end of the batch. It will
  // be first itself once those before it are served.
  TritonPolicy(const config::DynamicBatching& batching, int32_t max_batch_size, int64_t aging_ns,
               const PolicyOptions& options, bool skips_other_shapes = false);
  std::string_view name() const override { return "triton"; }
  Decision decide(const PolicyInput& input) const override;

 private:
  class Scan;
  bool is_preferred(int64_t rows) const;
  InferRequest* starved(const PolicyInput& input) const;

  std::vector<int64_t> preferred_;  // ascending; never empty
  int64_t max_batch_;
  int64_t delay_ns_;
  int64_t aging_ns_;
  PolicyOptions options_;
  bool skips_other_shapes_;
};

}  // namespace flywheel::schedule
