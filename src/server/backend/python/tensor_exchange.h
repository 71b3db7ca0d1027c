// SPDX-License-Identifier: Apache-2.0
// Requests, responses and their tensors in the forms of message.h. Called by what executes batches in a Python process
// and by what lets it call other models. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/backend/python/message.h"
#include "server/config/model_config.h"
#include "server/schedule/request.h"

namespace flywheel::python {

struct ModelResponse {
  Status status;
  std::vector<schedule::OutputTensor> outputs;
  schedule::Parameters parameters;
};

// JSON. Bytes that are not UTF-8 stay as they are; Python keeps them.
void append_parameters(std::string& json, const schedule::Parameters& parameters);
void append_strings(std::string& json, std::span<const std::string> values);
void append_correlation_id(std::string& json, const schedule::SequencePosition& sequence);

// Adds the tensor's bytes to the message and ["NAME",11,[1,4],OFFSET,SIZE] to the JSON.
void append_tensor(Outgoing& message, std::string_view name, config::DataType type, std::span<const int64_t> shape,
                   std::span<const std::byte> bytes);

// Nothing of a response that the process says too much or too little about is used.
// `failed`: the byte before it.
Result<ModelResponse> read_response(MessageReader& reader, const Incoming& message, bool failed);
Result<std::vector<schedule::OutputTensor>> read_tensors(MessageReader& reader, const Incoming& message);
schedule::Parameters read_parameters(MessageReader& reader);

// Of the outputs that the model gave, those asked for, in the order asked for; by default those of the configuration.
std::vector<schedule::OutputTensor> select_outputs(std::vector<schedule::OutputTensor> given,
                                                   std::span<const std::string> wanted,
                                                   const config::ModelConfig& config);

// The codes of TritonError.
Code code_from_triton(uint32_t code);
uint32_t code_to_triton(Code code);

}  // namespace flywheel::python
