// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/request.h"

#include <fmt/format.h>

#include <utility>

namespace flywheel::schedule {

void InferRequest::cancel() {
  if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
  std::shared_ptr<CancelListener> listener;
  {
    std::lock_guard lock(listener_mutex_);
    listener = listener_.lock();
  }
  if (listener) listener->on_cancel(*this);
}

void InferRequest::set_cancel_listener(std::weak_ptr<CancelListener> listener) {
  std::lock_guard lock(listener_mutex_);
  listener_ = std::move(listener);
}

bool InferRequest::respond(InferResponse response) {
  if (!response.final) {
    std::lock_guard lock(stream_mutex_);
    if (answered_.load(std::memory_order_acquire)) return false;
    if (on_response) on_response(*this, std::move(response));
    return true;
  }
  if (answered_.exchange(true, std::memory_order_acq_rel)) return false;
  {
    std::lock_guard lock(stream_mutex_);  // what another thread gives now comes first
  }
  if (on_response) on_response(*this, std::move(response));
  return true;
}

std::string request_prefix(std::string_view id) {
  return fmt::format("[request id: {}] ", id.empty() ? std::string_view("<id_unknown>") : id);
}

std::vector<int64_t> shape_signature(const std::vector<InputView>& inputs, bool batched) {
  std::vector<int64_t> signature;
  for (const InputView& input : inputs) {
    if (input.data_type == config::DataType::kInvalid) {  // an optional input that did not come
      signature.push_back(-1);
      continue;
    }
    const size_t skip = batched && !input.shape.empty() ? 1 : 0;
    // The rank separates one input's dims from the next one's.
    signature.push_back(static_cast<int64_t>(input.shape.size() - skip));
    signature.insert(signature.end(), input.shape.begin() + static_cast<std::ptrdiff_t>(skip), input.shape.end());
  }
  return signature;
}

}  // namespace flywheel::schedule
