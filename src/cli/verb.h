// SPDX-License-Identifier: Apache-2.0
// The verbs of `flywheel`: one function each, called by main.cc, adds a subcommand with its flags and, when the command
// line names that verb, puts what it does into `chosen`. Verbs parse flags and print; all else is the libraries' work.
// One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "flywheel/status.h"

namespace flywheel::cli {

// What the process returns; scripts rely on it.
enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2 };

using Verb = std::function<Status()>;

void add_build(CLI::App& app, Verb& chosen);
void add_run(CLI::App& app, Verb& chosen);
void add_bench(CLI::App& app, Verb& chosen);
void add_inspect(CLI::App& app, Verb& chosen);
void add_verify(CLI::App& app, Verb& chosen);
void add_serve(CLI::App& app, Verb& chosen);  // when the server is built

}  // namespace flywheel::cli
