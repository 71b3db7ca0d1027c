// SPDX-License-Identifier: Apache-2.0
// Reading JSON as requests carry it: thin checks around simdjson's on-demand parser that turn its codes into Triton's
// texts, read whole tensors, and validate even what is skipped, so that a malformed document is never half accepted.
// Included by sources only. Thread safety: a parser is one thread's.
#pragma once

#define SIMDJSON_EXCEPTIONS 0
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"
#include "server/config/data_type.h"

namespace flywheel::http {

namespace ondemand = simdjson::ondemand;

inline constexpr int kMaxJsonDepth = 100;
inline constexpr std::string_view kNotAnArray = "attempt to access JSON non-array as array";
inline constexpr std::string_view kNotAString = "attempt to access JSON non-string as string";

// The document in `text`, behind which SIMDJSON_PADDING more bytes are readable. Large documents get a parser of their
// own, so that no thread keeps memory for them; `owned` holds it.
struct JsonDocument {
  ondemand::parser owned;
  ondemand::document document;
  Status parse(std::string_view text);
  // After the last value was read: nothing may follow.
  Status finish();
  // For syntax errors: where.
  Status syntax_error(simdjson::error_code code);
  std::string_view text;
};

// Each reads one value, or says "Unable to parse '<what>': attempt to access JSON non-... as ...".
Status read_json_string(ondemand::value value, std::string_view what, std::string_view& out);
Status read_json_bool(ondemand::value value, std::string_view what, bool& out);
Status read_json_uint(ondemand::value value, std::string_view what, uint64_t& out);
Status read_json_shape(ondemand::value value, std::vector<int64_t>& out);

// Reads through a value that nobody wants.
Status skip_json(ondemand::value value, int depth = 0);

// The elements of a possibly nested array, as `type`, exactly `element_count` of them. `name` is the tensor's. `out`
// has room for them. Refuses types that JSON cannot carry.
Status read_json_tensor(ondemand::value value, std::string_view name, config::DataType type, uint64_t element_count,
                        std::byte* out);
// Of an array that was opened, and counted at most: a value can be opened but once.
Status read_json_tensor(ondemand::array array, std::string_view name, config::DataType type, uint64_t element_count,
                        std::byte* out);
// A string with its length of four bytes before it, as tensors of strings have them.
void append_string_element(std::string_view text, std::vector<std::byte>& out);
// The same for strings: each with its length of four bytes before it, appended to `out`.
Status read_json_strings(ondemand::value value, uint64_t element_count, std::vector<std::byte>& out);

}  // namespace flywheel::http
