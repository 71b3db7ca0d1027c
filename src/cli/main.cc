// SPDX-License-Identifier: Apache-2.0
// `flywheel <verb>`: parses the command line and runs one verb. Exit codes: 0 done, 1 failed (the reason is on standard
// error), 2 the command line is wrong.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "base/version.h"
#include "cli/verb.h"

namespace {

// What to answer to a first word that is no verb, which CLI11 would report as an absent one; "" when it is one.
std::string unknown_verb(const CLI::App& app, const std::string& word) {
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (verb->get_name() == word) return "";
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  }
  return fmt::format("'{}' is no verb; the verbs are {}\nRun with --help for more information.\n", word, verbs);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace flywheel::cli;
  CLI::App app("Flywheel compiles ONNX models into engines for this machine, runs them and serves them.", "flywheel");
  app.set_version_flag("--version", std::string("flywheel ") + flywheel::version());
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 failed, 2 wrong command line.\n`flywheel VERB --help` lists a verb's flags.");
  Verb chosen;
  add_build(app, chosen);
  add_run(app, chosen);
  add_bench(app, chosen);
  add_inspect(app, chosen);
  add_verify(app, chosen);
#if defined(FLYWHEEL_WITH_SERVER)
  add_serve(app, chosen);
#endif
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return kUsage;
  }
  if (argv[1][0] != '-') {
    const std::string complaint = unknown_verb(app, argv[1]);
    fmt::print(stderr, "{}", complaint);
    if (!complaint.empty()) return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  try {
    const flywheel::Status status = chosen();
    if (status.is_ok()) return kDone;
    fmt::print(stderr, "flywheel: {}\n", status.to_string());
  } catch (const std::exception& error) {  // a library's, such as out of memory
    fmt::print(stderr, "flywheel: {}\n", error.what());
  }
  return kFailed;
}
