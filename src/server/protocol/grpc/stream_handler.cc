// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/grpc/stream_handler.h"

#include <utility>
#include <vector>

#include "server/protocol/grpc/infer_handler.h"

namespace flywheel::grpc {
namespace {

// Responses that a client does not take stop its stream's requests, too.
constexpr size_t kMaxUnsentBytes = 16 << 20;
constexpr std::string_view kStopping = "GRPC server is shutting down and has stopped accepting new requests.";

}  // namespace

bool StreamHandler::on_message(http::Body message) {
  InferParts parts;
  Status status = read_infer_message(message, sources_, call_.head(), parts);
  auto item = std::make_shared<Item>();
  item->wishes = std::move(parts.wishes);
  item->trace = std::move(parts.trace);
  item->model = std::move(parts.model);
  item->decoupled = item->model != nullptr && is_decoupled(*item->model);
  if (parts.request != nullptr) {
    parts.request->on_response = [call = call_.shared_from_this(), this, item](schedule::InferRequest& request,
                                                                               schedule::InferResponse response) {
      if (item->trace != nullptr) settings::trace_response(*item->trace, request, response);
      {
        std::lock_guard lock(mutex_);
        if (response.final) item->done = true;
        item->responses.push_back(std::move(response));
      }
      call->wake();
    };
  }
  bool wants_more = false;
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return false;
    if (status.is_ok() && draining_) status = unavailable(std::string(kStopping));
    if (status.is_ok()) {
      item->request = parts.request;
    } else {
      item->refused = item->done = true;
      schedule::InferResponse refusal;
      refusal.status = status;
      item->responses.push_back(std::move(refusal));
    }
    items_.push_back(item);
    wants_more = items_.size() < static_cast<size_t>(options_.max_stream_requests);
    paused_ = !wants_more;
  }
  if (status.is_ok()) {
    const repository::ServedModel& model = *item->model;
    model.infer(std::move(parts.request));
  } else {
    call_.wake();
  }
  return wants_more;
}

std::vector<StreamHandler::Ready> StreamHandler::take_ready() {
  std::vector<Ready> ready;
  std::lock_guard lock(mutex_);
  bool earlier_unanswered = false;  // by a model of one response each
  for (auto it = items_.begin(); it != items_.end();) {
    Item& item = **it;
    if (!item.decoupled && (earlier_unanswered || !item.done)) {
      earlier_unanswered = true;
      ++it;
      continue;
    }
    if (item.done && item.trace != nullptr) item.trace->stamp("GRPC_SEND_START", schedule::monotonic_now_ns());
    for (schedule::InferResponse& response : item.responses) ready.push_back({*it, std::move(response)});
    item.responses.clear();
    it = item.done ? items_.erase(it) : std::next(it);
  }
  return ready;
}

bool StreamHandler::send_response(Ready ready) {
  const Item& item = *ready.item;
  schedule::InferResponse& response = ready.response;
  Status status = response.status;
  if (status.is_ok() && item.decoupled && response.final && response.outputs.empty()) {
    if (!item.wishes.empty_final_response) return true;
    return call_.send(make_stream_notice(item.wishes, {}, true, true));
  }
  if (status.is_ok()) {
    InferMessageOptions options;
    options.stream = true;
    options.final_response = response.final;
    options.coding = response_coding(options_, call_.head());
    Result<OutMessage> message = make_infer_message(*item.model, item.wishes, response, options);
    if (message.is_ok()) {
      call_.set_encoding(options.coding);
      return call_.send(std::move(message).value());
    }
    status = message.status();
  }
  if (call_.head().wants_grpc_errors) {
    on_abandoned();
    call_.finish(to_grpc(status));
    return false;
  }
  return call_.send(make_stream_notice(item.wishes, status.message(), !item.refused, response.final));
}

void StreamHandler::on_wake() {
  for (Ready& ready : take_ready()) {
    if (!send_response(std::move(ready))) return;
  }
  bool resume = false;
  {
    std::lock_guard lock(mutex_);
    const bool room = items_.size() <= static_cast<size_t>(options_.max_stream_requests) / 2;
    if (paused_ && room && call_.unsent_bytes() < kMaxUnsentBytes) {
      paused_ = false;
      resume = true;
    }
  }
  if (resume) call_.resume();
  end_if_done();
}

void StreamHandler::on_half_close() {
  {
    std::lock_guard lock(mutex_);
    half_closed_ = true;
  }
  end_if_done();
}

void StreamHandler::on_drain() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  end_if_done();
}

void StreamHandler::end_if_done() {
  bool half_closed = false;
  {
    std::lock_guard lock(mutex_);
    if (!items_.empty() || (!half_closed_ && !draining_)) return;
    half_closed = half_closed_;
  }
  if (half_closed) return call_.finish({});
  call_.finish({StatusCode::kUnavailable, std::string(kStopping)});
}

void StreamHandler::on_abandoned() {
  std::vector<schedule::RequestPtr> requests;
  {
    std::lock_guard lock(mutex_);
    abandoned_ = true;
    for (const ItemPtr& item : items_) {
      if (schedule::RequestPtr request = item->request.lock()) requests.push_back(std::move(request));
    }
    items_.clear();
  }
  for (const schedule::RequestPtr& request : requests) request->cancel();
}

}  // namespace flywheel::grpc
