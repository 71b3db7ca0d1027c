// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace flywheel::cli {
namespace {
volatile std::sig_atomic_t g_interrupted = 0;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

Progress::~Progress() {
  std::signal(SIGINT, SIG_DFL);
  if (shown_) fmt::print(stderr, "\r\033[K");
}

bool Progress::report(std::string_view phase, int done, int total) {
  if (terminal_) {
    const std::string count = total > 1 ? fmt::format(" {}/{}", done, total) : "";
    fmt::print(stderr, "\r\033[K{}{}", phase, count);
    std::fflush(stderr);
    shown_ = true;
  }
  return g_interrupted == 0;
}

}  // namespace flywheel::cli
