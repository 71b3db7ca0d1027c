// SPDX-License-Identifier: Apache-2.0
// One request's way through an ensemble: each step's request is made as soon as its inputs are there, out of the bytes
// that the steps before it gave, without copying them. Owned by its step requests in flight. Threads: any; whichever
// thread brings something new carries the run on, and one that comes meanwhile leaves what it brings to it. No lock is
// held while a model or the client's callback is called.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/ensemble/graph.h"
#include "server/ensemble/step_models.h"
#include "server/schedule/request.h"

namespace flywheel::ensemble {

// What all runs of an ensemble share.
struct Blueprint {
  config::ModelConfig config;
  Graph graph;
  std::shared_ptr<const StepModels> models;
};

class Run : public schedule::CancelListener, public std::enable_shared_from_this<Run> {
 public:
  // Told before the last answer is given, and with it. Sums over the steps' requests, in nanoseconds.
  struct Times {
    int64_t queue = 0, input = 0, infer = 0, output = 0;
  };
  using Finished = std::function<void(schedule::RequestPtr request, schedule::InferResponse response, const Times&)>;

  Run(std::shared_ptr<const Blueprint> blueprint, schedule::RequestPtr request, Finished finished);

  void start();
  // Answers with `status` now, without waiting for the steps in flight.
  void abandon(const Status& status);
  void on_cancel(schedule::InferRequest& request) override;

 private:
  struct Value {
    bool set = false;
    bool present = false;  // optional inputs may be absent
    config::DataType data_type = config::DataType::kInvalid;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    int64_t batch = 0;  // rows, when it has a batch dimension
    std::optional<schedule::SequencePosition> sequence;
    size_t uses_left = 0;
  };
  // The tensors of one response of a decoupled step and of what follows from it; the first scope is the request's.
  struct Scope {
    std::vector<Value> values;    // by tensor
    std::vector<size_t> missing;  // by step, inputs
    size_t outputs_missing = 0;
  };
  using ScopePtr = std::shared_ptr<Scope>;
  struct Due {
    ScopePtr scope;
    size_t step = 0;
  };
  struct Flight {
    ScopePtr scope;
    size_t step = 0;
    StepModel model;
    schedule::RequestPtr request;
  };
  using FlightPosition = std::list<Flight>::iterator;

  ScopePtr make_scope(int stage) const;
  void put_locked(const ScopePtr& scope, size_t tensor, Value value);
  std::vector<schedule::OutputTensor> take_outputs_locked(Scope& scope);
  void fail_locked(Status status, schedule::FailureReason reason);
  void carry_on();
  bool take_due_locked(Due& due);
  void launch(Due due);
  Status make_request(const Due& due, Flight& flight);
  void receive(FlightPosition flight, schedule::InferResponse response);
  void cancel_flights();

  const std::shared_ptr<const Blueprint> blueprint_;
  const schedule::RequestPtr request_;
  const Finished finished_;
  std::vector<bool> needed_;    // steps
  std::vector<size_t> wanted_;  // tensors, in the order of the response
  std::vector<size_t> uses_;    // by tensor: needed steps that read it, and the response

  std::mutex mutex_;
  ScopePtr root_;
  std::deque<Due> due_;
  std::vector<size_t> step_flights_;  // by step
  std::list<Flight> flights_;
  std::deque<std::vector<schedule::OutputTensor>> partial_;  // responses of a decoupled ensemble, to be given
  Status status_;
  schedule::FailureReason reason_ = schedule::FailureReason::kNone;
  Times times_;
  bool carried_ = false;  // a thread carries the run on
  bool finished_now_ = false;
};

}  // namespace flywheel::ensemble
