// SPDX-License-Identifier: Apache-2.0
// How requests are traced, as Triton's trace extension has it: the values, and changes to them as the protocols carry
// them. The protocols make changes, Tracer acts on them.
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"

namespace flywheel::settings {

// Bits of TraceSetting::level.
inline constexpr uint8_t kTraceOff = 0, kTraceTimestamps = 1, kTraceTensors = 2;
inline constexpr std::string_view kTraceMode = "triton";

struct TraceSetting {
  uint8_t level = kTraceOff;
  uint32_t rate = 1000;        // one request of so many
  int32_t count = -1;          // traces still to take; -1: no limit
  uint32_t log_frequency = 0;  // > 0: a file of its own, <file>.<n>, for so many traces
  std::string file;            // set at start only
};

// Absent: the field stays as it is. Present but empty: it goes back to the setting that it falls back to, which for a
// model is the global one and for that the one given at start.
template <class T>
using Change = std::optional<std::optional<T>>;
struct TraceChanges {
  Change<uint8_t> level;
  Change<uint32_t> rate;
  Change<int32_t> count;
  Change<uint32_t> log_frequency;

  // One field by the name that clients know; no values: clear it. Refuses trace_file and what cannot be read with
  // Triton's texts, and ignores names that are no field, as Triton does.
  Status set(std::string_view field, const std::optional<std::vector<std::string>>& values);
};

// "OFF", or those of "TIMESTAMPS" and "TENSORS" that apply.
std::vector<std::string_view> trace_level_names(uint8_t level);

// --trace-config: `texts` are "level=TIMESTAMPS", "rate=100", "count=-1", "mode=triton", "triton,file=/tmp/t.json",
// "triton,log-frequency=50".
Result<TraceSetting> parse_trace_config(std::span<const std::string> texts);

}  // namespace flywheel::settings
