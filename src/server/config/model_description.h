// SPDX-License-Identifier: Apache-2.0
// What a model file says of itself, in the configuration's terms. The repository fills one from an engine and hands it
// to complete_config, which takes from it whatever config.pbtxt left out and checks the rest against it. Thread safety:
// a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/config/data_type.h"

namespace flywheel::config {

struct TensorDescription {
  std::string name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> shape;  // whole, with the batch dimension if there is one; -1 is any size
};

struct ModelDescription {
  std::vector<TensorDescription> inputs;
  std::vector<TensorDescription> outputs;
  // The largest size that the leading dimension of every input and output can take, when that dimension is a batch that
  // the model treats row by row; 0 when it has none.
  int32_t max_batch_size = 0;
  bool adds_dynamic_batching = true;  // to a text that chooses no scheduler
  std::string platform = "flywheel_engine";
  std::string backend = "flywheel";
  std::string model_filename = "model.engine";
};

}  // namespace flywheel::config
