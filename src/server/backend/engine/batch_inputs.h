// SPDX-License-Identifier: Apache-2.0
// Ragged batches: inputs that the server computes for a batch from the shapes of its requests, and outputs that it cuts
// by them. Model instances call it. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_executor.h"

namespace flywheel::engines {

struct ComputedInput {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// `source`: the place of the source input in the requests.
Result<ComputedInput> compute_batch_input(const config::BatchInput& input, size_t source,
                                          std::span<const schedule::BatchItem> items);

// Appends the request's part of an output: as many elements as its shape has, from `at` on, which moves behind them.
Status add_cut(const std::shared_ptr<std::byte>& data, const std::string& name, config::DataType data_type,
               size_t element_bytes, size_t total_bytes, const std::vector<int64_t>& shape, size_t& at,
               std::vector<schedule::OutputTensor>& outputs);

}  // namespace flywheel::engines
