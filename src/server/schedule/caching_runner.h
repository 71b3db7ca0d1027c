// SPDX-License-Identifier: Apache-2.0
// A model's runner behind the server's response cache: what was answered before is answered from memory, at once, and
// what was not is remembered when the model has answered it. The repository puts it before the runner of a model whose
// configuration enables response_cache. A second request that equals one in flight does not wait for it. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "server/schedule/request_runner.h"
#include "server/schedule/response_cache.h"

namespace flywheel::schedule {

class CachingRunner : public RequestRunner {
 public:
  CachingRunner(std::unique_ptr<RequestRunner> model, std::shared_ptr<ResponseCache> cache);
  ~CachingRunner() override;

  void enqueue(RequestPtr request) override;
  void stop(int64_t grace_ns) override { model_->stop(grace_ns); }
  std::shared_ptr<ModelStatistics> statistics() const override { return model_->statistics(); }
  size_t queued_requests() const override { return model_->queued_requests(); }

 private:
  const std::unique_ptr<RequestRunner> model_;
  const std::shared_ptr<ResponseCache> cache_;
  const std::shared_ptr<ModelStatistics> statistics_;
  const uint64_t number_;  // of the loaded version
};

}  // namespace flywheel::schedule
