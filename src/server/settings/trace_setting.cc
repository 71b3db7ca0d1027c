// SPDX-License-Identifier: Apache-2.0
#include "server/settings/trace_setting.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace flywheel::settings {
namespace {

constexpr int32_t kMinTraceCount = -1;

template <class T>
Result<T> parse_number(std::string_view field, std::string_view text, T lowest) {
  // Triton reads them with std::stoi: blanks and a sign before the digits, whatever behind them.
  std::string_view digits = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument) {
    return invalid_argument(fmt::format("Unable to parse '{}', got: {}", field, text));
  }
  if (error != std::errc() || value > int64_t{std::numeric_limits<T>::max()} || value < int64_t{lowest}) {
    if (error == std::errc() && lowest < 0 && value < int64_t{lowest}) {
      return invalid_argument(fmt::format("Unable to parse '{}'. Expecting value >= {}, got:{}", field, lowest, text));
    }
    return invalid_argument(fmt::format("Unable to parse '{}', value is out of range [ {}, {} ], got: {}", field,
                                        lowest, std::numeric_limits<T>::max(), text));
  }
  return static_cast<T>(value);
}

Result<uint8_t> parse_level(const std::vector<std::string>& names) {
  uint8_t level = kTraceOff;
  for (const std::string& name : names) {
    if (name == "OFF") {
      if (names.size() > 1) return invalid_argument("Expect only one trace level 'OFF' is specified");
    } else if (name == "TIMESTAMPS") {
      level |= kTraceTimestamps;
    } else if (name == "TENSORS") {
      level |= kTraceTensors;
    } else {
      return invalid_argument(fmt::format("unknown trace level '{}': it must be OFF, TIMESTAMPS or TENSORS", name));
    }
  }
  return level;
}

template <class T>
Status set_number(Change<T>& change, std::string_view field, const std::optional<std::vector<std::string>>& values,
                  T lowest) {
  change.emplace();
  if (!values) return {};
  if (values->size() != 1) {
    return invalid_argument(fmt::format("Unable to parse '{}': expected one value, got {}", field, values->size()));
  }
  FW_ASSIGN_OR_RETURN(change->emplace(), parse_number<T>(field, values->front(), lowest));
  return {};
}

}  // namespace

Status TraceChanges::set(std::string_view field, const std::optional<std::vector<std::string>>& values) {
  if (field == "trace_file") {
    return unsupported("trace file location can not be updated through network protocol");
  }
  if (field == "trace_level") {
    level.emplace();
    if (!values) return {};
    FW_ASSIGN_OR_RETURN(level->emplace(), parse_level(*values));
    return {};
  }
  if (field == "trace_rate") return set_number<uint32_t>(rate, field, values, 0);
  if (field == "trace_count") return set_number<int32_t>(count, field, values, kMinTraceCount);
  if (field == "log_frequency") return set_number<uint32_t>(log_frequency, field, values, 0);
  return {};
}

std::vector<std::string_view> trace_level_names(uint8_t level) {
  std::vector<std::string_view> names;
  if ((level & kTraceTimestamps) != 0) names.push_back("TIMESTAMPS");
  if ((level & kTraceTensors) != 0) names.push_back("TENSORS");
  if (names.empty()) names.push_back("OFF");
  return names;
}

Result<TraceSetting> parse_trace_config(std::span<const std::string> texts) {
  TraceSetting setting;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    std::string key = text.substr(0, equals);
    const std::string value = equals == std::string::npos ? std::string() : text.substr(equals + 1);
    auto refuse = [&](const std::string& why) {
      return invalid_argument(fmt::format("--trace-config {}: {}", text, why));
    };
    if (equals == std::string::npos) {
      return refuse("expected level=, rate=, count=, mode=, triton,file= or triton,log-frequency=");
    }
    if (key.starts_with("opentelemetry,") || (key == "mode" && value != kTraceMode)) {
      return refuse("the only mode of tracing is triton: records in a file");
    }
    if (key == "mode") continue;
    if (key.starts_with("triton,")) key.erase(0, 7);
    if (key == "file") {
      setting.file = value;
      continue;
    }
    TraceChanges changes;
    const std::string_view field = key == "level"           ? "trace_level"
                                   : key == "rate"          ? "trace_rate"
                                   : key == "count"         ? "trace_count"
                                   : key == "log-frequency" ? "log_frequency"
                                                            : "";
    if (field.empty()) {
      return refuse("expected level=, rate=, count=, mode=, triton,file= or triton,log-frequency=");
    }
    if (const Status status = changes.set(field, std::vector<std::string>{value}); !status.is_ok()) {
      return refuse(status.message());
    }
    if (changes.level) setting.level |= **changes.level;
    if (changes.rate) setting.rate = **changes.rate;
    if (changes.count) setting.count = **changes.count;
    if (changes.log_frequency) setting.log_frequency = **changes.log_frequency;
  }
  return setting;
}

}  // namespace flywheel::settings
