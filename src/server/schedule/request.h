// SPDX-License-Identifier: Apache-2.0
// One inference request on its way through the server. A protocol makes it, fills the fields above the line and hands
// it to the model; the model's last call of on_response comes exactly once, whatever happens, and only decoupled models
// call it before. The protocol may keep its pointer and call cancel() at any time from any thread, and reads nothing
// else of it until the last on_response.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flywheel/status.h"
#include "server/config/data_type.h"
#include "server/schedule/timeline.h"

namespace flywheel::schedule {

class InferRequest;
using RequestPtr = std::shared_ptr<InferRequest>;

struct InputView {
  std::string name;
  config::DataType data_type = config::DataType::kInvalid;  // so remains an optional input that did not come
  std::vector<int64_t> shape;                               // with the batch dimension, when the model has one
  std::span<const std::byte> bytes;
};

struct OutputTensor {
  std::string name;
  config::DataType data_type = config::DataType::kInvalid;
  std::vector<int64_t> shape;  // with the batch dimension, when the model has one
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps `bytes` alive; requests of one batch may share it
};

// Why a request failed, as the failure counters are labelled.
enum class FailureReason : uint8_t { kNone, kRejected, kCanceled, kBackend, kOther };

// A parameter that the protocols have no meaning for; models may.
using ParameterValue = std::variant<bool, int64_t, double, std::string>;
using Parameters = std::map<std::string, ParameterValue, std::less<>>;

// Where a request stands in a sequence of requests that one instance has to see.
struct SequencePosition {
  std::variant<uint64_t, std::string> id = uint64_t{0};  // 0 and "": the request is of no sequence
  bool start = false;
  bool end = false;

  bool any() const {
    const auto* text = std::get_if<std::string>(&id);
    return text != nullptr ? !text->empty() : std::get<uint64_t>(id) != 0;
  }
};

struct InferResponse {
  Status status;
  FailureReason reason = FailureReason::kNone;
  std::vector<OutputTensor> outputs;  // in the order of `requested_outputs`, or of the configuration
  Parameters parameters;              // the model's
  // Only decoupled models give more than one response, or none: their last call may be final, ok and without outputs.
  bool final = true;
};

// Told at once when a queued request is cancelled. The scheduler implements it.
class CancelListener {
 public:
  virtual ~CancelListener() = default;
  virtual void on_cancel(InferRequest& request) = 0;
};

class InferRequest {
 public:
  InferRequest() = default;
  InferRequest(const InferRequest&) = delete;
  InferRequest& operator=(const InferRequest&) = delete;

  std::string id;           // the client's; empty if it gave none
  uint64_t priority = 0;    // 0 or beyond the model's levels: the model's default level
  uint64_t timeout_us = 0;  // 0: none; can only shorten the model's own, and only where the model allows it
  int64_t batch_size = 1;   // rows; 1 when the model has no batch dimension
  std::vector<InputView> inputs;
  std::vector<std::string> requested_outputs;  // empty: all
  std::shared_ptr<const void> input_owner;     // keeps the inputs' bytes alive
  SequencePosition sequence;
  Parameters parameters;
  // Requests are batched together only if these are equal; see shape_signature(). Empty when every shape is fixed.
  std::vector<int64_t> signature;
  Timeline timeline;
  // Called exactly once with a final response, never after it, and by one thread at a time: from enqueue's caller when
  // the request is refused at the door, else from a thread of the model's. Must not block and must not call the
  // scheduler's stop().
  std::function<void(InferRequest& request, InferResponse response)> on_response;

  // The client gave up. If the request still waits, it is answered with kCancelled soon; if it executes, its result is
  // delivered as usual.
  void cancel();
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // -------------------------------------------------------------------------------------------------------------------
  // The scheduler's side.

  void set_cancel_listener(std::weak_ptr<CancelListener> listener);
  // Answers, unless the last answer was given: true for the caller whose answer it was.
  bool respond(InferResponse response);

  // Where the request stands in its queue; written by RequestQueue alone.
  struct QueuePlace {
    bool queued = false;
    bool delayed = false;   // its time ran out and the policy is to serve it after the others of its level
    uint64_t sequence = 0;  // order of arrival
    uint64_t level = 0;     // effective priority level
    int64_t expiry_ns = 0;  // when its time in the queue runs out; kNever if it does not
    std::list<RequestPtr>::iterator position;
  };
  QueuePlace place;

 private:
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> answered_{false};
  std::mutex stream_mutex_;  // held while a response that is not the last is given
  std::mutex listener_mutex_;
  std::weak_ptr<CancelListener> listener_;
};

// "[request id: 7] ", or <id_unknown> for none: what refusals of a request begin with.
std::string request_prefix(std::string_view id);

// What has to be equal for two requests to share a batch: which inputs are present and their dimensions, without the
// batch
// (`batched`: the leading dimension is the batch). `inputs` are in one order for all requests, the configuration's.
// A model whose every input has fixed dims needs none: leave the signature empty.
std::vector<int64_t> shape_signature(const std::vector<InputView>& inputs, bool batched);

}  // namespace flywheel::schedule
