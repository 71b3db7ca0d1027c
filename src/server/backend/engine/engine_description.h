// SPDX-License-Identifier: Apache-2.0
// What an engine says of itself, in the terms of the server's configuration: element types, shapes, whether its leading
// dimension is a batch, and its measured latencies. The model loader calls these once for each engine it loads.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flywheel/engine.h"
#include "server/config/data_type.h"
#include "server/config/model_description.h"
#include "server/schedule/batch_policy.h"

namespace flywheel::engines {

config::DataType to_data_type(DType dtype);

// The batch that the engine takes: the profile's largest extent of the leading dimension, when all inputs and outputs
// share that dimension's symbol, no other dimension depends on it, and one row is allowed. 0 otherwise.
int32_t find_max_batch_size(const Engine& engine);

config::ModelDescription describe_engine(const Engine& engine);
schedule::LatencyCurve latency_curve_of(const Engine& engine);

// Takes dims that match `from`, and gives those of `to`, whose -1 are filled by those of `from` in order: what a
// `reshape` in config.pbtxt means. REQUIRES: as many -1 in both, and dims.size() == from.size().
std::vector<int64_t> map_dims(std::span<const int64_t> from, std::span<const int64_t> to,
                              std::span<const int64_t> dims);

}  // namespace flywheel::engines
