// SPDX-License-Identifier: Apache-2.0
#include "compiler/tune/timing_cache.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <span>

#include "base/mapped_file.h"

namespace flywheel::tune {
namespace {

constexpr std::string_view kHeader = "flywheel timing cache 1";
constexpr size_t kMaxFileBytes = size_t{256} << 20;

std::string entry_name(std::string_view key, std::string_view tactic) { return fmt::format("{}\t{}", tactic, key); }

}  // namespace

Result<TimingCache> TimingCache::load(const std::string& path) {
  TimingCache cache;
  Result<std::string> text = read_text_file(path, kMaxFileBytes);
  if (!text.is_ok()) {
    if (text.status().code() == Code::kNotFound) return cache;
    return text.status();
  }
  std::string_view rest = *text;
  int line_number = 0;
  auto damaged = [&](std::string_view why) {
    return corrupt(
        fmt::format("timing cache '{}' line {}: {}; delete the file or name another", path, line_number, why));
  };
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    ++line_number;
    if (line == kHeader || line.empty()) continue;
    if (line_number == 1) return damaged(fmt::format("found '{}', expected '{}'", line.substr(0, 40), kHeader));
    const size_t tab = line.find('\t');
    double ms = 0;
    if (tab == std::string_view::npos) return damaged("no tab between time and tactic");
    auto [parsed, error] = std::from_chars(line.data(), line.data() + tab, ms);
    if (error != std::errc() || parsed != line.data() + tab || !(ms >= 0)) return damaged("the time is not a number");
    if (line.find('\t', tab + 1) == std::string_view::npos) return damaged("no tab between tactic and problem");
    cache.entries_[std::string(line.substr(tab + 1))] = ms;
  }
  return cache;
}

Status TimingCache::save(const std::string& path) const {
  std::string text = fmt::format("{}\n", kHeader);
  for (const auto& [name, ms] : entries_) text += fmt::format("{:.6g}\t{}\n", ms, name);
  return write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<double> TimingCache::find(std::string_view key, std::string_view tactic) const {
  auto it = entries_.find(entry_name(key, tactic));
  return it == entries_.end() ? std::nullopt : std::optional<double>(it->second);
}

void TimingCache::record(std::string_view key, std::string_view tactic, double ms) {
  entries_[entry_name(key, tactic)] = std::strtod(fmt::format("{:.6g}", ms).c_str(), nullptr);
}

}  // namespace flywheel::tune
