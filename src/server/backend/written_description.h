// SPDX-License-Identifier: Apache-2.0
// What a model whose files say nothing of its tensors is taken to be: what its configuration says. For backends that
// run programs rather than graphs. Thread safety: pure functions.
#pragma once

#include "server/config/model_config.h"
#include "server/config/model_description.h"
#include "server/config/server_tensors.h"

namespace flywheel::backend {

// Backend, platform and file name are left to the caller.
inline config::ModelDescription describe_as_written(const config::ModelConfig& written) {
  auto describe = [&](const std::vector<config::TensorConfig>& tensors) {
    std::vector<config::TensorDescription> described;
    for (const config::TensorConfig& tensor : tensors) {
      std::vector<int64_t> shape = tensor.model_dims();
      if (written.max_batch_size > 0) shape.insert(shape.begin(), -1);
      described.push_back({tensor.name, tensor.data_type, std::move(shape)});
    }
    return described;
  };
  const config::ModelConfig whole = config::with_server_tensors(written);
  config::ModelDescription description;
  description.max_batch_size = written.max_batch_size;
  description.inputs = describe(whole.inputs);
  description.outputs = describe(whole.outputs);
  description.adds_dynamic_batching = false;
  description.platform.clear();
  return description;
}

}  // namespace flywheel::backend
