// SPDX-License-Identifier: Apache-2.0
// JSON text, appended to a string: what the protocol's answers need and no more. Numbers are the shortest that read
// back as the same value; floats without a fraction get ".0", so that clients see them as floats. Thread safety: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "flywheel/status.h"
#include "server/config/data_type.h"

namespace flywheel::config {

using flywheel::append_json_string;
void append_json_int(std::string& out, int64_t value);
void append_json_uint(std::string& out, uint64_t value);
// NaN and the infinities are written NaN, Infinity and -Infinity, as Triton does and as Python's json reads them.
void append_json_float(std::string& out, float value);
void append_json_double(std::string& out, double value);
void append_json_shape(std::string& out, std::span<const int64_t> dims);  // [1,2,3]

// The elements of a tensor as a flat array. Refuses FP16 and BF16 as Triton does, and strings whose lengths do not fit
// `bytes`.
Status append_json_tensor(std::string& out, config::DataType type, std::span<const std::byte> bytes);

}  // namespace flywheel::config
