// SPDX-License-Identifier: Apache-2.0
// Takes an ensemble's requests, as a scheduler takes a model's. It has no threads and no queue: what its steps' models
// do carries its requests on. The repository makes one for each version of an ensemble. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "flywheel/status.h"
#include "server/ensemble/run.h"
#include "server/schedule/request_runner.h"

namespace flywheel::ensemble {

class EnsembleRunner : public schedule::RequestRunner {
 public:
  explicit EnsembleRunner(std::shared_ptr<const Blueprint> blueprint);
  ~EnsembleRunner() override;  // stops
  EnsembleRunner(const EnsembleRunner&) = delete;
  EnsembleRunner& operator=(const EnsembleRunner&) = delete;

  // REQUIRES: the request was checked against the ensemble's configuration.
  void enqueue(schedule::RequestPtr request) override;
  void stop(int64_t grace_ns) override;
  std::shared_ptr<schedule::ModelStatistics> statistics() const override;
  size_t queued_requests() const override { return 0; }

 private:
  class Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace flywheel::ensemble
