// SPDX-License-Identifier: Apache-2.0
// The body of an inference request: JSON with tensors in it, JSON followed by binary tensors, or one raw tensor. Binary
// tensors are not copied: the request refers to the body and shares its ownership.
// Thread safety: pure functions; called by reactors and by the slow lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/protocol/http/body.h"
#include "server/schedule/request.h"
#include "server/shared_memory/region_registry.h"

namespace flywheel::http {

// How the client wants an output.
struct OutputWish {
  std::string name;
  std::optional<bool> binary;        // nothing: as the request says for all
  uint64_t classes = 0;              // > 0: the k best classes instead of the values
  shared_memory::OutputPlace place;  // where the values go instead of the response
};

struct InferBody {
  std::vector<OutputWish> outputs;  // empty: all
  bool binary_by_default = false;
};

// Fills in what the body says: id, parameters, inputs, requested outputs, and the owner of the inputs' bytes. Inputs in
// shared memory are read from it.
// `json_bytes`: how much of the body is JSON; 0: the body is one raw tensor. `config`: the model's; inputs that it does
// not have are not decoded. `max_input_bytes` bounds a tensor decoded from JSON.
Status read_infer_body(const Body& body, size_t json_bytes, const config::ModelConfig& config, uint64_t max_input_bytes,
                       const shared_memory::RegionRegistry& regions, schedule::InferRequest& request, InferBody& out);

}  // namespace flywheel::http
