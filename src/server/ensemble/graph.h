// SPDX-License-Identifier: Apache-2.0
// An ensemble's steps and the tensors between them, numbered, and held against the configurations of the models: which
// step waits for what, what each response sets off. Made when the ensemble is loaded; immutable afterwards, any thread.
//
// Tensors have a stage: 0 for what comes from the request, and another number for each decoupled step's outputs and for
// what is computed from them. A decoupled step's every response begins its stage anew, apart from the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"

namespace flywheel::ensemble {

struct Graph {
  struct Tensor {
    std::string name;
    std::vector<size_t> consumers;  // steps, each once
    bool is_output = false;
    int stage = 0;
  };
  struct Binding {
    std::string name;  // the model's
    size_t tensor = 0;
  };
  struct Step {
    std::string model;
    int64_t version = -1;
    std::vector<Binding> inputs;
    std::vector<Binding> outputs;
    std::vector<std::string> output_names;
    size_t distinct_inputs = 0;
    bool decoupled = false;
    int stage = 0;  // of its inputs
  };

  std::vector<Tensor> tensors;
  std::vector<Step> steps;
  std::vector<size_t> inputs;   // tensors, in the configuration's order
  std::vector<size_t> outputs;  // likewise
  int output_stage = 0;
  int stages = 1;

  bool decoupled() const { return output_stage != 0; }
  std::vector<size_t> make_producers() const;  // by tensor, the step; kNone for the request's
  // By step, whether any of the named outputs needs it.
  std::vector<bool> needed_steps(const std::vector<std::string>& wanted_outputs) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
};

using FindConfig = std::function<Result<const config::ModelConfig*>(std::string_view name, int64_t version)>;

// REQUIRES: config.ensemble, structurally valid: completed by config::complete_ensemble.
Result<Graph> build_graph(const config::ModelConfig& config, const FindConfig& find);

// Whether a shape fits dims that may leave sizes open; either may.
bool dims_agree(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

}  // namespace flywheel::ensemble
