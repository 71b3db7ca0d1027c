// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/splitting_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace flywheel::schedule {
namespace {

// One request and its parts. Lives as long as any part.
class Split : public CancelListener, public std::enable_shared_from_this<Split> {
 public:
  Split(RequestPtr request, size_t parts) : request_(std::move(request)), parts_(parts), responses_(parts) {}

  void add_part(size_t index, const RequestPtr& part) {
    parts_[index] = part;
    part->on_response = [self = shared_from_this(), index](InferRequest& answered, InferResponse response) {
      self->receive(index, answered, std::move(response));
    };
  }
  void on_cancel(InferRequest&) override {
    std::vector<RequestPtr> parts;
    {
      std::lock_guard lock(mutex_);
      for (const std::weak_ptr<InferRequest>& weak : parts_) {
        if (RequestPtr part = weak.lock()) parts.push_back(std::move(part));
      }
    }
    for (const RequestPtr& part : parts) part->cancel();
  }

 private:
  void receive(size_t index, const InferRequest& answered, InferResponse response) {
    {
      std::lock_guard lock(mutex_);
      Timeline& sum = request_->timeline;
      const Timeline& part = answered.timeline;
      const auto earlier = [](int64_t a, int64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); };
      sum.queued_ns = earlier(sum.queued_ns, part.queued_ns);
      sum.batch_formed_ns = earlier(sum.batch_formed_ns, part.batch_formed_ns);
      sum.input_done_ns = earlier(sum.input_done_ns, part.input_done_ns);
      sum.compute_done_ns = std::max(sum.compute_done_ns, part.compute_done_ns);
      sum.output_done_ns = std::max(sum.output_done_ns, part.output_done_ns);
      responses_[index] = std::move(response);
      if (++answered_ < responses_.size()) return;
    }
    request_->respond(join());
  }

  InferResponse join() {
    for (InferResponse& response : responses_) {
      if (!response.status.is_ok()) return std::move(response);
    }
    InferResponse joined;
    joined.parameters = std::move(responses_.front().parameters);
    for (size_t o = 0; o < responses_.front().outputs.size(); ++o) {
      OutputTensor output = responses_.front().outputs[o];
      size_t bytes = 0;
      int64_t rows = 0;
      for (const InferResponse& response : responses_) {
        const OutputTensor* part = o < response.outputs.size() ? &response.outputs[o] : nullptr;
        const bool same = part != nullptr && part->name == output.name && part->shape.size() == output.shape.size() &&
                          !part->shape.empty() &&
                          std::equal(part->shape.begin() + 1, part->shape.end(), output.shape.begin() + 1);
        if (!same) {
          return {internal_error(fmt::format("the parts of a split request gave output '{}' in different shapes, which "
                                             "cannot be joined: remove the parameter split_large_requests",
                                             output.name)),
                  FailureReason::kBackend,
                  {}};
        }
        bytes += part->bytes.size();
        rows += part->shape[0];
      }
      std::shared_ptr<std::byte[]> data(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
      if (data == nullptr) {
        return {out_of_memory(fmt::format("no memory for {} bytes of output '{}'", bytes, output.name)),
                FailureReason::kBackend,
                {}};
      }
      size_t at = 0;
      for (const InferResponse& response : responses_) {
        const std::span<const std::byte> part = response.outputs[o].bytes;
        if (!part.empty()) std::memcpy(data.get() + at, part.data(), part.size());
        at += part.size();
      }
      output.shape[0] = rows;
      output.bytes = {data.get(), bytes};
      output.owner = std::move(data);
      joined.outputs.push_back(std::move(output));
    }
    return joined;
  }

  const RequestPtr request_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<InferRequest>> parts_;
  std::vector<InferResponse> responses_;
  size_t answered_ = 0;
};

}  // namespace

void SplittingRunner::enqueue(RequestPtr request) {
  const int64_t rows = request->batch_size;
  if (rows <= max_batch_size_) {
    model_->enqueue(std::move(request));
    return;
  }
  const size_t count = static_cast<size_t>((rows + max_batch_size_ - 1) / max_batch_size_);
  const auto split = std::make_shared<Split>(request, count);
  std::vector<RequestPtr> parts;
  for (size_t i = 0; i < count; ++i) {
    const int64_t first = static_cast<int64_t>(i) * max_batch_size_;
    const int64_t size = std::min(max_batch_size_, rows - first);
    auto part = std::make_shared<InferRequest>();
    part->id = request->id;
    part->priority = request->priority;
    part->timeout_us = request->timeout_us;
    part->batch_size = size;
    part->requested_outputs = request->requested_outputs;
    part->input_owner = request->input_owner;
    part->parameters = request->parameters;
    part->signature = request->signature;
    part->timeline.received_ns = request->timeline.received_ns;
    for (const InputView& input : request->inputs) {
      InputView view = input;
      if (input.shape.empty()) {  // an optional input that did not come
        part->inputs.push_back(std::move(view));
        continue;
      }
      const size_t row_bytes = input.bytes.size() / static_cast<size_t>(rows);
      view.shape[0] = size;
      view.bytes = input.bytes.subspan(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(size) * row_bytes);
      part->inputs.push_back(std::move(view));
    }
    split->add_part(i, part);
    parts.push_back(std::move(part));
  }
  request->set_cancel_listener(split);
  const bool cancelled = request->is_cancelled();
  for (RequestPtr& part : parts) {
    if (cancelled) part->cancel();
    model_->enqueue(std::move(part));
  }
}

}  // namespace flywheel::schedule
