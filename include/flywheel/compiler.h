// SPDX-License-Identifier: Apache-2.0
// The compiler: an ONNX model in, an engine file for one machine out. Links the runtime too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/status.h"

namespace flywheel {

// The range of one input's shape; dims equal in all three are fixed.
struct ProfileShape {
  std::vector<int64_t> min, opt, max;
};
// "name:1x3x224x224,8x3x224x224,32x3x224x224" (min, opt, max), or one shape for all three.
Result<std::pair<std::string, ProfileShape>> parse_profile(std::string_view text);

// What is known of the shapes that will come, in place of the defaults for dims that the profile does not give.
struct ShapeHints {
  int64_t max_batch = 0;  // of the first dim of every input, if that is dynamic; 0: not known
  // By input name: extents that are always the same; -1: not known. Ignored for another rank.
  std::map<std::string, std::vector<int64_t>> dims;
};

struct BuildOptions {
  std::map<std::string, ProfileShape>
      profile;  // by input name; inputs with dynamic dims that are absent get printed defaults
  ShapeHints hints;
  std::string device = "cpu";
  std::string target_isa;       // "" = this machine's best; another one is cross-built from heuristics
  int threads = 0;              // that the engine is tuned for; 0: all cores
  std::string timing_cache;     // path; "" = none. Read if it exists, rewritten with what was measured
  double time_budget_s = 0;     // 0 = unlimited; when it ends, the remaining steps are chosen by heuristic
  bool tune = true;             // false: heuristics only, deterministic without a cache
  std::string dump_passes_dir;  // "" = none. The graph's text after each pass that changed it
  std::vector<std::string> disabled_passes;
  // The model's files are read into memory, not mapped: for programs that must survive whoever writes into them, or
  // shortens them, meanwhile.
  bool copy_files = false;
  bool reference_kernels = false;  // each family's reference kernel; slow, for verification
  // Called with (phase, done, total); returning false cancels the build (kCancelled).
  std::function<bool(std::string_view phase, int done, int total)> progress;
};

struct BuildReport {
  std::string summary;             // human text: profile defaults, passes, steps, memory, time
  std::vector<std::string> notes;  // e.g. the default profile taken for an input
  std::vector<std::pair<std::string, double>> pass_ms;
  int onnx_nodes = 0, steps = 0, tuned = 0, from_cache = 0;
  double seconds = 0;
};

// Compiles and writes atomically. Errors: kInvalidArgument (bad model or profile), kUnsupported (lists every node),
// kCancelled.
Result<BuildReport> build_engine(const std::string& onnx_path, const std::string& engine_path,
                                 const BuildOptions& options);

// The graph after import, or after all passes, in text form; for people and tests.
Result<std::string> print_model(const std::string& onnx_path, const BuildOptions& options, bool after_passes);

}  // namespace flywheel
