// SPDX-License-Identifier: Apache-2.0
// What the ensemble's tests share: models that are functions, answered at once or when the test says so, and ensembles
// from the text that a user would write.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/config/parse_config.h"
#include "server/ensemble/ensemble_runner.h"

namespace flywheel::ensemble {

inline config::TensorConfig tensor(std::string name, std::vector<int64_t> dims,
                                   config::DataType type = config::DataType::kFp32) {
  config::TensorConfig made;
  made.name = std::move(name);
  made.dims = std::move(dims);
  made.data_type = type;
  return made;
}

inline schedule::OutputTensor floats(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
  auto owner = std::make_shared<std::vector<float>>(std::move(values));
  schedule::OutputTensor output;
  output.name = std::move(name);
  output.data_type = config::DataType::kFp32;
  output.shape = std::move(shape);
  output.bytes = std::as_bytes(std::span(*owner));
  output.owner = owner;
  return output;
}

inline std::vector<float> values_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Models by name. A model without a function keeps its requests until the test answers them.
class FakeModels : public StepModels {
 public:
  using Function = std::function<schedule::InferResponse(const schedule::InferRequest&)>;
  struct Model {
    config::ModelConfig config;
    Function function;
  };

  void add(const std::string& name, config::ModelConfig config, Function function = {}) {
    config.name = name;
    std::lock_guard lock(mutex_);
    models_[name] = std::make_shared<Model>(Model{std::move(config), std::move(function)});
  }
  // x FP32 [4] to y, each value through f; up to 8 rows.
  void add_map(const std::string& name, std::function<float(float)> f) {
    config::ModelConfig config;
    config.max_batch_size = 8;
    config.inputs = {tensor("x", {4})};
    config.outputs = {tensor("y", {4})};
    add(name, config, [f](const schedule::InferRequest& request) {
      std::vector<float> values = values_of(request.inputs[0].bytes);
      for (float& value : values) value = f(value);
      schedule::InferResponse response;
      response.outputs.push_back(floats("y", request.inputs[0].shape, values));
      return response;
    });
  }
  void remove(const std::string& name) {
    std::lock_guard lock(mutex_);
    models_.erase(name);
  }

  Result<StepModel> find(std::string_view name, int64_t) const override {
    std::lock_guard lock(mutex_);
    const auto it = models_.find(std::string(name));
    if (it == models_.end()) return not_found("Request for unknown model: '" + std::string(name) + "' is not found");
    return StepModel{it->second, &it->second->config};
  }
  Status prepare(const StepModel&, schedule::InferRequest& request) const override {
    std::lock_guard lock(mutex_);
    prepared.push_back(request.inputs.empty() ? std::vector<int64_t>() : request.inputs[0].shape);
    return {};
  }
  void infer(const StepModel& model, schedule::RequestPtr request) const override {
    const Model& target = *std::static_pointer_cast<const Model>(model.handle);
    if (target.function) {
      schedule::InferResponse response = target.function(*request);
      request->respond(std::move(response));
      return;
    }
    std::lock_guard lock(mutex_);
    held.push_back({target.config.name, request});
  }
  std::shared_ptr<const config::ModelConfig> config_of(const std::string& name) const {
    const auto model = models_.at(name);
    return {model, &model->config};
  }

  mutable std::vector<std::vector<int64_t>> prepared;  // first inputs' shapes
  mutable std::deque<std::pair<std::string, schedule::RequestPtr>> held;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Model>> models_;
};

inline Result<config::ModelConfig> ensemble_config(const std::string& text) {
  FW_ASSIGN_OR_RETURN(const config::ModelConfig parsed,
                      config::parse_config("platform: \"ensemble\"\n" + text, "config.pbtxt", "e"));
  return config::complete_ensemble(parsed);
}

inline Result<std::shared_ptr<const Blueprint>> blueprint(const std::string& text,
                                                          const std::shared_ptr<FakeModels>& models) {
  auto made = std::make_shared<Blueprint>();
  FW_ASSIGN_OR_RETURN(made->config, ensemble_config(text));
  made->models = models;
  FW_ASSIGN_OR_RETURN(
      made->graph, build_graph(made->config, [&](std::string_view name, int64_t) -> Result<const config::ModelConfig*> {
        FW_ASSIGN_OR_RETURN(const StepModel model, models->find(name, -1));
        return model.config;
      }));
  return std::shared_ptr<const Blueprint>(made);
}

// What a request was answered with.
struct Answer {
  int finals = 0;
  Status status;
  schedule::FailureReason reason = schedule::FailureReason::kNone;
  std::vector<std::vector<schedule::OutputTensor>> responses;  // with outputs, in order
};

inline schedule::RequestPtr request_of(std::vector<float> values, std::vector<int64_t> shape,
                                       const std::shared_ptr<Answer>& answer, const std::string& name = "IN") {
  auto request = std::make_shared<schedule::InferRequest>();
  auto owner = std::make_shared<std::vector<float>>(std::move(values));
  request->batch_size = shape.empty() ? 1 : shape[0];
  request->inputs.push_back({name, config::DataType::kFp32, std::move(shape), std::as_bytes(std::span(*owner))});
  request->input_owner = owner;
  request->timeline.received_ns = schedule::monotonic_now_ns();
  request->on_response = [answer](schedule::InferRequest&, schedule::InferResponse response) {
    if (!response.outputs.empty()) answer->responses.push_back(std::move(response.outputs));
    if (!response.final) return;
    ++answer->finals;
    answer->status = response.status;
    answer->reason = response.reason;
  };
  return request;
}

}  // namespace flywheel::ensemble
