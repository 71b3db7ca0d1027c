// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "soak/traffic.h"

namespace flywheel::soak {

void Tally::wrong(const std::string& what) {
  constexpr int kPrinted = 3;  // of one kind
  constexpr size_t kKindBytes = 30, kMaxBytes = 2000;
  ++wrong_;
  std::lock_guard lock(mutex_);
  if (printed_[what.substr(0, kKindBytes)]++ < kPrinted)
    std::fprintf(stderr, "WRONG: %s\n", what.substr(0, kMaxBytes).c_str());
}

std::string Tally::summary() const {
  return fmt::format("{} answered, {} refused as due, {} abandoned by clients, {} wrong", answered_.load(),
                     refused_.load(), abandoned_.load(), wrong_.load());
}

}  // namespace flywheel::soak
