// SPDX-License-Identifier: Apache-2.0
// Progress of a long verb, on standard error, and its cancellation by Ctrl-C.
// One at a time in a process: it owns the SIGINT handler while it lives. One thread.
#pragma once

#include <string>
#include <string_view>

namespace flywheel::cli {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Rewrites one line on a terminal; elsewhere nothing is shown. False once Ctrl-C was pressed; a second Ctrl-C ends
  // the process.
  bool report(std::string_view phase, int done, int total);

 private:
  bool terminal_ = false;
  bool shown_ = false;
};

}  // namespace flywheel::cli
