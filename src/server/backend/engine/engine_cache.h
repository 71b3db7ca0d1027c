// SPDX-License-Identifier: Apache-2.0
// Engines for models that come as ONNX: built when they are first loaded, and kept beside the model or in a cache
// folder under a name that says what they were built from and for. The server knows the compiler only as the function
// given here. Called from loading threads; several processes may share a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flywheel/engine.h"
#include "flywheel/status.h"

namespace flywheel::engines {

// What a model's configuration says of the shapes that will come.
struct KnownShapes {
  int64_t max_batch = 0;                             // 0: not said
  std::map<std::string, std::vector<int64_t>> dims;  // by input, with the batch; -1: any

  std::string to_string() const;
};

// Writes an engine for the ONNX file. Gives up, with kCancelled, soon after `keep_going` returns false.
using EngineBuilder = std::function<Status(const std::string& onnx_path, const std::string& engine_path,
                                           const KnownShapes& shapes, const std::function<bool()>& keep_going)>;
using EngineLoader = std::function<Result<std::shared_ptr<Engine>>(const std::string& path)>;

struct EngineCacheOptions {
  std::string folder;   // "": beside the ONNX file
  std::string machine;  // what else an engine depends on: CPU, threads
  EngineBuilder build;  // may be empty: ONNX files are refused then
  EngineLoader load;
};

class EngineCache {
 public:
  explicit EngineCache(EngineCacheOptions options) : options_(std::move(options)) {}

  // `label`: names the model in the log and in the cache folder.
  Result<std::shared_ptr<Engine>> load_or_build(const std::string& onnx_path, std::string_view label,
                                                const KnownShapes& shapes,
                                                const std::function<bool()>& keep_going) const;

  // Whether a file of that name is an engine that a cache keeps beside an ONNX file, or the beginning of one.
  static bool is_own_file(std::string_view name);

 private:
  const EngineCacheOptions options_;
};

}  // namespace flywheel::engines
