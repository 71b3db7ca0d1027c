// SPDX-License-Identifier: Apache-2.0
// Triton's classification extension: instead of its values, an output's k best classes, as strings "value:index" or
// "value:index:label".
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flywheel/status.h"
#include "server/repository/served_model.h"
#include "server/schedule/request.h"

namespace flywheel::http {

struct Classes {
  std::vector<int64_t> shape;      // [batch, k], or [k]
  std::vector<std::byte> content;  // BYTES: a length before each string
};

Result<Classes> best_classes(const schedule::OutputTensor& output, uint64_t count,
                             const repository::ServedModel& model);

}  // namespace flywheel::http
