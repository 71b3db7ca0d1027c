// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/caching_runner.h"

#include <atomic>
#include <utility>

namespace flywheel::schedule {
namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

CachingRunner::CachingRunner(std::unique_ptr<RequestRunner> model, std::shared_ptr<ResponseCache> cache)
    : model_(std::move(model)), cache_(std::move(cache)), statistics_(model_->statistics()), number_(next_number()) {}

CachingRunner::~CachingRunner() { cache_->forget(number_); }

void CachingRunner::enqueue(RequestPtr request) {
  const int64_t begin_ns = monotonic_now_ns();
  if (request->sequence.any()) {  // its answer depends on more than itself
    model_->enqueue(std::move(request));
    return;
  }
  const ResponseCache::Key key = ResponseCache::key_of(number_, *request);
  const std::shared_ptr<const ResponseCache::Entry> entry = cache_->find(key);
  const int64_t found_ns = monotonic_now_ns();
  if (entry != nullptr) {
    InferResponse response;
    response.outputs = entry->outputs;
    response.parameters = entry->parameters;
    statistics_->record_cache_hit(found_ns - begin_ns, request->timeline.received_ns, found_ns);
    request->respond(std::move(response));
    return;
  }
  request->on_response = [cache = cache_, statistics = statistics_, key, number = number_,
                          lookup_ns = found_ns - begin_ns,
                          given = std::move(request->on_response)](InferRequest& answered, InferResponse response) {
    if (response.status.is_ok() && response.final) {
      const int64_t insert_ns = monotonic_now_ns();
      cache->insert(number, key, response);
      statistics->record_cache_miss(lookup_ns + monotonic_now_ns() - insert_ns);
    }
    given(answered, std::move(response));
  };
  model_->enqueue(std::move(request));
}

}  // namespace flywheel::schedule
