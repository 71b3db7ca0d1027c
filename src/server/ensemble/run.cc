// SPDX-License-Identifier: Apache-2.0
#include "server/ensemble/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flywheel::ensemble {
namespace {

using schedule::FailureReason;
using schedule::InferRequest;
using schedule::InferResponse;
using schedule::OutputTensor;
using schedule::SequencePosition;

// Between a model with a batch dimension and one without: a batch of one may lose it or get it. Anything else is left
// to the model to accept or refuse.
std::vector<int64_t> adapt_shape(const std::vector<int64_t>& config_dims, bool wants_batch, int64_t batch,
                                 const std::vector<int64_t>& shape) {
  if (wants_batch == (batch != 0)) return shape;
  const bool agrees = dims_agree(config_dims, shape);
  if (wants_batch && agrees) {
    std::vector<int64_t> longer{1};
    longer.insert(longer.end(), shape.begin(), shape.end());
    return longer;
  }
  if (!wants_batch && !agrees && batch == 1 && !shape.empty()) return {shape.begin() + 1, shape.end()};
  return shape;
}

// A model may tell those that come after it in an ensemble what sequence its output belongs to.
std::optional<SequencePosition> sequence_of(const schedule::Parameters& parameters) {
  SequencePosition position;
  const auto id = parameters.find("sequence_id");
  if (id == parameters.end()) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&id->second)) {
    position.id = static_cast<uint64_t>(*number);
  } else if (const auto* text = std::get_if<std::string>(&id->second)) {
    position.id = *text;
  } else {
    return std::nullopt;
  }
  const auto flag = [&](const char* name) {
    const auto it = parameters.find(name);
    const bool* value = it == parameters.end() ? nullptr : std::get_if<bool>(&it->second);
    return value != nullptr && *value;
  };
  position.start = flag("sequence_start");
  position.end = flag("sequence_end");
  return position;
}

}  // namespace

Run::Run(std::shared_ptr<const Blueprint> blueprint, schedule::RequestPtr request, Finished finished)
    : blueprint_(std::move(blueprint)), request_(std::move(request)), finished_(std::move(finished)) {
  const Graph& graph = blueprint_->graph;
  const std::vector<std::string>& names = request_->requested_outputs;
  if (names.empty()) {
    needed_.assign(graph.steps.size(), true);  // a step that no output needs was refused at load
    wanted_ = graph.outputs;
  } else {
    needed_ = graph.needed_steps(names);
    for (const std::string& name : names) {
      for (size_t output : graph.outputs) {
        if (graph.tensors[output].name == name) wanted_.push_back(output);
      }
    }
  }
  uses_.resize(graph.tensors.size());
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    for (size_t step : graph.tensors[t].consumers) uses_[t] += needed_[step] ? 1 : 0;
  }
  for (size_t output : wanted_) ++uses_[output];
  step_flights_.resize(graph.steps.size());
}

Run::ScopePtr Run::make_scope(int stage) const {
  const Graph& graph = blueprint_->graph;
  auto scope = std::make_shared<Scope>();
  scope->values.resize(graph.tensors.size());
  scope->missing.resize(graph.steps.size());
  for (size_t s = 0; s < graph.steps.size(); ++s) scope->missing[s] = graph.steps[s].distinct_inputs;
  scope->outputs_missing = stage == graph.output_stage ? wanted_.size() : 0;
  return scope;
}

void Run::put_locked(const ScopePtr& scope, size_t tensor, Value value) {
  if (uses_[tensor] == 0 || scope->values[tensor].set) return;
  const Graph::Tensor& described = blueprint_->graph.tensors[tensor];
  value.set = true;
  value.uses_left = uses_[tensor];
  scope->values[tensor] = std::move(value);
  for (size_t step : described.consumers) {
    if (needed_[step] && --scope->missing[step] == 0) due_.push_back({scope, step});
  }
  if (std::find(wanted_.begin(), wanted_.end(), tensor) == wanted_.end() || --scope->outputs_missing != 0) return;
  if (blueprint_->graph.decoupled()) partial_.push_back(take_outputs_locked(*scope));
}

std::vector<OutputTensor> Run::take_outputs_locked(Scope& scope) {
  const config::ModelConfig& config = blueprint_->config;
  std::vector<OutputTensor> outputs;
  outputs.reserve(wanted_.size());
  for (size_t tensor : wanted_) {
    Value& value = scope.values[tensor];
    if (!value.present) continue;
    OutputTensor output;
    output.name = blueprint_->graph.tensors[tensor].name;
    output.data_type = value.data_type;
    const config::TensorConfig* described = config.find_output(output.name);
    output.shape = adapt_shape(described->dims, config.max_batch_size > 0, value.batch, value.shape);
    output.bytes = value.bytes;
    output.owner = value.owner;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

void Run::start() {
  request_->set_cancel_listener(weak_from_this());
  const Graph& graph = blueprint_->graph;
  const config::ModelConfig& config = blueprint_->config;
  {
    std::lock_guard lock(mutex_);
    root_ = make_scope(0);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const std::string& name = config.inputs[i].name;
      Value value;
      for (const schedule::InputView& input : request_->inputs) {
        if (input.name != name || input.data_type == config::DataType::kInvalid) continue;
        value.present = true;
        value.data_type = input.data_type;
        value.shape = input.shape;
        value.bytes = input.bytes;
        value.owner = request_->input_owner;
        value.batch = config.max_batch_size > 0 && !input.shape.empty() ? input.shape[0] : 0;
      }
      put_locked(root_, graph.inputs[i], std::move(value));
    }
  }
  carry_on();
}

void Run::fail_locked(Status status, FailureReason reason) {
  if (!status_.is_ok()) return;
  status_ = {status.code(), fmt::format("in ensemble '{}', {}", blueprint_->config.name, status.message())};
  reason_ = reason;
  due_.clear();
}

bool Run::take_due_locked(Due& due) {
  const size_t limit = blueprint_->config.ensemble->max_inflight_requests;
  const auto next =
      std::find_if(due_.begin(), due_.end(), [&](const Due& d) { return limit == 0 || step_flights_[d.step] < limit; });
  if (next == due_.end()) return false;
  due = std::move(*next);
  due_.erase(next);
  ++step_flights_[due.step];
  return true;
}

void Run::carry_on() {
  const std::shared_ptr<Run> self = shared_from_this();
  std::unique_lock lock(mutex_);
  if (carried_ || finished_now_) return;
  carried_ = true;
  for (;;) {
    if (request_->is_cancelled()) fail_locked({Code::kCancelled, "Request was cancelled"}, FailureReason::kCanceled);
    if (!status_.is_ok()) {
      partial_.clear();
      if (flights_.empty()) break;
      lock.unlock();
      cancel_flights();
      lock.lock();
      // Their answers carry the run on to its end.
      if (!flights_.empty()) {
        carried_ = false;
        return;
      }
      continue;
    }
    if (!partial_.empty()) {
      InferResponse response;
      response.outputs = std::move(partial_.front());
      response.final = false;
      partial_.pop_front();
      lock.unlock();
      request_->respond(std::move(response));
      lock.lock();
      continue;
    }
    Due due;
    if (take_due_locked(due)) {
      lock.unlock();
      launch(std::move(due));
      lock.lock();
      continue;
    }
    if (flights_.empty()) break;
    carried_ = false;
    return;
  }
  finished_now_ = true;
  InferResponse response;
  response.status = status_;
  response.reason = reason_;
  if (status_.is_ok() && !blueprint_->graph.decoupled()) {
    if (root_->outputs_missing == 0) {
      response.outputs = take_outputs_locked(*root_);
    } else {
      response.status = invalid_argument(
          fmt::format("in ensemble '{}', {}unexpected deadlock, at least one output is not set while no more ensemble "
                      "steps can be made",
                      blueprint_->config.name, schedule::request_prefix(request_->id)));
      response.reason = FailureReason::kOther;
    }
  }
  root_.reset();
  const Times times = times_;
  lock.unlock();
  finished_(request_, std::move(response), times);
}

Status Run::make_request(const Due& due, Flight& flight) {
  const Graph::Step& step = blueprint_->graph.steps[due.step];
  FW_ASSIGN_OR_RETURN(flight.model, blueprint_->models->find(step.model, step.version));
  const config::ModelConfig& model = *flight.model.config;
  auto request = std::make_shared<InferRequest>();
  request->id = request_->id;
  request->priority = request_->priority;
  request->timeout_us = request_->timeout_us;
  request->parameters = request_->parameters;
  request->sequence = request_->sequence;
  request->requested_outputs = step.output_names;
  request->timeline.received_ns = schedule::monotonic_now_ns();
  auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  {
    std::lock_guard lock(mutex_);
    std::vector<size_t> released;
    for (const Graph::Binding& binding : step.inputs) {
      const Value& value = due.scope->values[binding.tensor];
      if (std::find(released.begin(), released.end(), binding.tensor) == released.end())
        released.push_back(binding.tensor);
      if (!value.present) continue;
      const config::TensorConfig* described = model.find_input(binding.name);
      schedule::InputView input;
      input.name = binding.name;
      input.data_type = value.data_type;
      input.shape = described == nullptr
                        ? value.shape
                        : adapt_shape(described->dims, model.max_batch_size > 0, value.batch, value.shape);
      input.bytes = value.bytes;
      request->inputs.push_back(std::move(input));
      if (value.owner) owners->push_back(value.owner);
      if (value.sequence) request->sequence = *value.sequence;
    }
    for (size_t tensor : released) {
      Value& value = due.scope->values[tensor];
      if (--value.uses_left == 0) value.owner.reset();
    }
  }
  request->input_owner = std::move(owners);
  FW_RETURN_IF_ERROR(blueprint_->models->prepare(flight.model, *request));
  flight.request = std::move(request);
  return {};
}

void Run::launch(Due due) {
  Flight flight;
  flight.scope = due.scope;
  flight.step = due.step;
  if (Status status = make_request(due, flight); !status.is_ok()) {
    std::lock_guard lock(mutex_);
    --step_flights_[due.step];
    fail_locked(std::move(status), FailureReason::kOther);
    return;
  }
  const schedule::RequestPtr request = flight.request;
  const StepModel model = flight.model;
  FlightPosition position;
  {
    std::lock_guard lock(mutex_);
    position = flights_.insert(flights_.end(), std::move(flight));
  }
  request->on_response = [self = shared_from_this(), position](InferRequest&, InferResponse response) {
    self->receive(position, std::move(response));
  };
  blueprint_->models->infer(model, request);
}

void Run::receive(FlightPosition flight, InferResponse response) {
  Flight ended;  // what it holds goes without the lock
  {
    std::lock_guard lock(mutex_);
    const Graph::Step& step = blueprint_->graph.steps[flight->step];
    if (!response.status.is_ok()) {
      const bool cancelled = response.reason == FailureReason::kCanceled && request_->is_cancelled();
      fail_locked(response.status, cancelled ? FailureReason::kCanceled : FailureReason::kOther);
    } else if (status_.is_ok() && !response.outputs.empty()) {
      const bool batched = flight->model.config->max_batch_size > 0;
      const int stage = blueprint_->graph.tensors[step.outputs.front().tensor].stage;
      const ScopePtr scope = step.decoupled ? make_scope(stage) : flight->scope;
      const std::optional<SequencePosition> sequence = sequence_of(response.parameters);
      for (OutputTensor& output : response.outputs) {
        const auto binding = std::find_if(step.outputs.begin(), step.outputs.end(),
                                          [&](const Graph::Binding& b) { return b.name == output.name; });
        if (binding == step.outputs.end()) continue;
        Value value;
        value.present = true;
        value.data_type = output.data_type;
        value.batch = batched && !output.shape.empty() ? output.shape[0] : 0;
        value.shape = std::move(output.shape);
        value.bytes = output.bytes;
        value.owner = std::move(output.owner);
        value.sequence = sequence;
        put_locked(scope, binding->tensor, std::move(value));
      }
    }
    if (response.final) {
      const schedule::Timeline& timeline = flight->request->timeline;
      times_.queue += timeline.queue_ns();
      times_.input += timeline.compute_input_ns();
      times_.infer += timeline.compute_infer_ns();
      times_.output += timeline.compute_output_ns();
      --step_flights_[flight->step];
      ended = std::move(*flight);
      flights_.erase(flight);
    }
  }
  carry_on();
}

void Run::cancel_flights() {
  std::vector<schedule::RequestPtr> requests;
  {
    std::lock_guard lock(mutex_);
    for (const Flight& flight : flights_) requests.push_back(flight.request);
  }
  for (const schedule::RequestPtr& request : requests) request->cancel();
}

void Run::on_cancel(InferRequest&) {
  cancel_flights();
  carry_on();
}

void Run::abandon(const Status& status) {
  Times times;
  {
    std::lock_guard lock(mutex_);
    if (finished_now_) return;
    finished_now_ = true;
    status_ = status;
    due_.clear();
    partial_.clear();
    times = times_;
  }
  cancel_flights();
  finished_(request_, {status, FailureReason::kRejected, {}}, times);
}

}  // namespace flywheel::ensemble
