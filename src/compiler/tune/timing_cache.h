// SPDX-License-Identifier: Apache-2.0
// Measured times of tactics, kept in a text file between builds: one line an entry, keyed by machine, thread count,
// problem and tactic. The file is portable between builds and can be merged by concatenation; lines that do not parse
// are an error, not skipped, so that a damaged cache is noticed. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "flywheel/status.h"

namespace flywheel::tune {

class TimingCache {
 public:
  // An absent file gives an empty cache. kCorrupt names the line.
  static Result<TimingCache> load(const std::string& path);
  // Sorted, so that equal contents give equal bytes. Atomic.
  Status save(const std::string& path) const;

  std::optional<double> find(std::string_view key, std::string_view tactic) const;
  // Kept with six digits, as a file of it has.
  void record(std::string_view key, std::string_view tactic, double ms);
  size_t size() const { return entries_.size(); }

 private:
  std::map<std::string, double, std::less<>> entries_;  // "<tactic>\t<key>" -> ms
};

}  // namespace flywheel::tune
