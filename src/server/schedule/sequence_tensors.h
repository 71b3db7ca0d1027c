// SPDX-License-Identifier: Apache-2.0
// The tensors that a stateful model takes and gives besides what clients see: controls, which tell it where each row's
// request stands in its sequence, and states, which it gives for one step and gets back with the next. The sequence
// scheduler adds them to requests, behind the clients' inputs in the order of config::with_server_tensors, and takes
// them off responses. Immutable once made; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/request.h"

namespace flywheel::schedule {

class SequenceTensors {
 public:
  // Reads the states' initial values from the folder's initial_state/. REQUIRES: config.sequence_batching.
  static Result<SequenceTensors> create(const config::ModelConfig& config, const std::string& model_folder);

  // Whether the request's id can be told to the model.
  Status check(const InferRequest& request) const;
  // Adds controls and states; `state` is the sequence's, empty where it begins.
  void add(InferRequest& request, const std::vector<OutputTensor>& state) const;
  // A row that stands for no request: `like` in its shapes, zeros in its values, not ready in its controls.
  RequestPtr make_empty(const InferRequest& like) const;
  // Takes the states out of a response; the outputs that the client asked for stay.
  std::vector<OutputTensor> take_states(const std::vector<std::string>& client_wants,
                                        std::vector<OutputTensor>& outputs) const;

 private:
  struct State {
    config::SequenceState config;
    bool is_output = false;  // clients may ask for it too
    std::vector<int64_t> initial_shape;
    std::shared_ptr<const std::vector<std::byte>> initial;
  };
  void add_control(InferRequest& request, const config::SequenceControl& control, bool ready) const;
  void add_states(InferRequest& request, const std::vector<OutputTensor>& state) const;

  std::string model_name_;
  bool batched_ = false;
  std::vector<config::SequenceControl> controls_;
  std::vector<State> states_;
  std::vector<std::string> outputs_;  // the clients'
};

}  // namespace flywheel::schedule
