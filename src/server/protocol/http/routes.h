// SPDX-License-Identifier: Apache-2.0
// Every path of the inference protocol over HTTP, in one table: KServeHandler finds a request's route in it, and the
// OpenAPI document is written from it. Thread safety: pure functions over constants.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/settings/access.h"

namespace flywheel::http {

enum class Route : uint8_t {
  kInfer,
  kGenerate,
  kGenerateStream,
  kServerMetadata,
  kLive,
  kReady,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kModelTrace,
  kTrace,
  kLogging,
  kIndex,
  kLoad,
  kUnload,
  kNamedRepository,
  kSystemMemoryStatus,
  kSystemMemoryRegister,
  kSystemMemoryUnregister,
  kCudaMemoryStatus,
  kCudaMemoryRegister,
  kCudaMemoryUnregister,
  kOpenApi,
};

struct RouteInfo {
  Route route;
  std::string_view pattern;  // "/v2/models/{model}/infer"
  bool get = false, post = false;
  settings::ApiCategory category = settings::ApiCategory::kMetadata;
  std::string_view summary;
};

// In the order in which they are tried.
std::span<const RouteInfo> routes();

struct RouteMatch {
  const RouteInfo* info = nullptr;
  // What the pattern's braces stand for; empty when it has none of that name.
  std::string name;     // {model} or {region}
  std::string version;  // {version}: digits
};
// `path` as sent, percent-encoding included.
std::optional<RouteMatch> match_route(std::string_view path);

}  // namespace flywheel::http
