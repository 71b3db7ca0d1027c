// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/routes.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace flywheel::http {
namespace {

using settings::ApiCategory;

constexpr bool kGet = true, kNoGet = false, kPost = true, kNoPost = false;
constexpr RouteInfo kRoutes[] = {
    {Route::kInfer, "/v2/models/{model}/infer", kNoGet, kPost, ApiCategory::kInference,
     "Run the newest version of a model"},
    {Route::kInfer, "/v2/models/{model}/versions/{version}/infer", kNoGet, kPost, ApiCategory::kInference,
     "Run a version of a model"},
    {Route::kServerMetadata, "/v2", kGet, kNoPost, ApiCategory::kMetadata, "The server's name, version and extensions"},
    {Route::kLive, "/v2/health/live", kGet, kNoPost, ApiCategory::kHealth, "Whether the server runs"},
    {Route::kReady, "/v2/health/ready", kGet, kNoPost, ApiCategory::kHealth,
     "Whether the server and its models are ready"},
    {Route::kAllStatistics, "/v2/models/stats", kGet, kNoPost, ApiCategory::kStatistics,
     "Statistics of all models that are ready"},
    {Route::kModelMetadata, "/v2/models/{model}", kGet, kNoPost, ApiCategory::kMetadata,
     "A model's inputs and outputs"},
    {Route::kModelMetadata, "/v2/models/{model}/versions/{version}", kGet, kNoPost, ApiCategory::kMetadata,
     "The inputs and outputs of a version of a model"},
    {Route::kModelReady, "/v2/models/{model}/ready", kGet, kNoPost, ApiCategory::kHealth, "Whether a model is ready"},
    {Route::kModelReady, "/v2/models/{model}/versions/{version}/ready", kGet, kNoPost, ApiCategory::kHealth,
     "Whether a version of a model is ready"},
    {Route::kModelConfig, "/v2/models/{model}/config", kGet, kNoPost, ApiCategory::kModelConfig,
     "A model's configuration"},
    {Route::kModelConfig, "/v2/models/{model}/versions/{version}/config", kGet, kNoPost, ApiCategory::kModelConfig,
     "The configuration of a version of a model"},
    {Route::kModelStatistics, "/v2/models/{model}/stats", kGet, kNoPost, ApiCategory::kStatistics,
     "A model's statistics"},
    {Route::kModelStatistics, "/v2/models/{model}/versions/{version}/stats", kGet, kNoPost, ApiCategory::kStatistics,
     "Statistics of a version of a model"},
    {Route::kGenerate, "/v2/models/{model}/generate", kNoGet, kPost, ApiCategory::kInference,
     "Run a model with flat JSON in and out"},
    {Route::kGenerate, "/v2/models/{model}/versions/{version}/generate", kNoGet, kPost, ApiCategory::kInference,
     "Run a version of a model with flat JSON in and out"},
    {Route::kGenerateStream, "/v2/models/{model}/generate_stream", kNoGet, kPost, ApiCategory::kInference,
     "Run a model with flat JSON in and server-sent events out"},
    {Route::kGenerateStream, "/v2/models/{model}/versions/{version}/generate_stream", kNoGet, kPost,
     ApiCategory::kInference, "Run a version of a model with flat JSON in and server-sent events out"},
    {Route::kModelTrace, "/v2/models/{model}/trace/setting", kGet, kPost, ApiCategory::kTrace,
     "How requests of a model are traced"},
    {Route::kTrace, "/v2/trace/setting", kGet, kPost, ApiCategory::kTrace, "How requests are traced"},
    {Route::kLogging, "/v2/logging", kGet, kPost, ApiCategory::kLogging, "What is logged"},
    {Route::kIndex, "/v2/repository/index", kNoGet, kPost, ApiCategory::kModelRepository,
     "The models of the repositories and their states"},
    {Route::kLoad, "/v2/repository/models/{model}/load", kNoGet, kPost, ApiCategory::kModelRepository,
     "Load a model, or load it anew"},
    {Route::kUnload, "/v2/repository/models/{model}/unload", kNoGet, kPost, ApiCategory::kModelRepository,
     "Unload a model"},
    {Route::kNamedRepository, "/v2/repository/{repository}/index", kNoGet, kPost, ApiCategory::kModelRepository,
     "Not supported: repositories have no names"},
    {Route::kNamedRepository, "/v2/repository/{repository}/models/{model}/load", kNoGet, kPost,
     ApiCategory::kModelRepository, "Not supported: repositories have no names"},
    {Route::kNamedRepository, "/v2/repository/{repository}/models/{model}/unload", kNoGet, kPost,
     ApiCategory::kModelRepository, "Not supported: repositories have no names"},
    {Route::kSystemMemoryStatus, "/v2/systemsharedmemory/status", kGet, kNoPost, ApiCategory::kSharedMemory,
     "All registered regions of shared memory"},
    {Route::kSystemMemoryStatus, "/v2/systemsharedmemory/region/{region}/status", kGet, kNoPost,
     ApiCategory::kSharedMemory, "A registered region of shared memory"},
    {Route::kSystemMemoryRegister, "/v2/systemsharedmemory/region/{region}/register", kNoGet, kPost,
     ApiCategory::kSharedMemory, "Register a region of shared memory"},
    {Route::kSystemMemoryRegister, "/v2/systemsharedmemory/register", kNoGet, kPost, ApiCategory::kSharedMemory,
     "Refused: a region needs a name"},
    {Route::kSystemMemoryUnregister, "/v2/systemsharedmemory/unregister", kNoGet, kPost, ApiCategory::kSharedMemory,
     "Unregister all regions of shared memory"},
    {Route::kSystemMemoryUnregister, "/v2/systemsharedmemory/region/{region}/unregister", kNoGet, kPost,
     ApiCategory::kSharedMemory, "Unregister a region of shared memory"},
    {Route::kCudaMemoryStatus, "/v2/cudasharedmemory/status", kGet, kNoPost, ApiCategory::kSharedMemory,
     "No region: there is no CUDA here"},
    {Route::kCudaMemoryStatus, "/v2/cudasharedmemory/region/{region}/status", kGet, kNoPost, ApiCategory::kSharedMemory,
     "Not found: there is no CUDA here"},
    {Route::kCudaMemoryRegister, "/v2/cudasharedmemory/region/{region}/register", kNoGet, kPost,
     ApiCategory::kSharedMemory, "Refused: there is no CUDA here"},
    {Route::kCudaMemoryRegister, "/v2/cudasharedmemory/register", kNoGet, kPost, ApiCategory::kSharedMemory,
     "Refused: there is no CUDA here"},
    {Route::kCudaMemoryUnregister, "/v2/cudasharedmemory/unregister", kNoGet, kPost, ApiCategory::kSharedMemory,
     "Nothing to do: there is no CUDA here"},
    {Route::kCudaMemoryUnregister, "/v2/cudasharedmemory/region/{region}/unregister", kNoGet, kPost,
     ApiCategory::kSharedMemory, "Nothing to do: there is no CUDA here"},
    {Route::kOpenApi, "/openapi.json", kGet, kNoPost, ApiCategory::kMetadata, "This document"},
};

constexpr size_t kMaxSegments = 8;
struct Segments {
  std::array<std::string_view, kMaxSegments> at;
  size_t count = 0;
};

// "/a/b" -> {"a", "b"}; none for paths that no route can have.
constexpr Segments split(std::string_view path) {
  Segments segments;
  if (path.empty() || path.front() != '/') return {};
  path.remove_prefix(1);
  while (true) {
    const size_t slash = path.find('/');
    if (slash == 0 || path.empty() || segments.count == kMaxSegments) return {};
    segments.at[segments.count++] = path.substr(0, slash);
    if (slash == std::string_view::npos) return segments;
    path.remove_prefix(slash + 1);
  }
}

constexpr auto kPatterns = [] {
  std::array<Segments, std::size(kRoutes)> patterns;
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = split(kRoutes[i].pattern);
  return patterns;
}();

std::optional<std::string> decode(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '%') {
      text += raw[i];
      continue;
    }
    unsigned code = 0;
    const bool whole = i + 2 < raw.size();
    if (!whole || std::from_chars(raw.data() + i + 1, raw.data() + i + 3, code, 16).ptr != raw.data() + i + 3) {
      return std::nullopt;
    }
    text += static_cast<char>(code);
    i += 2;
  }
  return text;
}

bool fits(const Segments& pattern, std::span<const std::string> path) {
  if (pattern.count != path.size()) return false;
  // Ends differ more than beginnings do.
  for (size_t i = path.size(); i-- > 0;) {
    const std::string_view wanted = pattern.at[i];
    if (wanted == "{version}") {
      if (path[i].find_first_not_of("0123456789") != std::string::npos) return false;
    } else if (wanted.front() != '{' && wanted != path[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const RouteInfo> routes() { return kRoutes; }

std::optional<RouteMatch> match_route(std::string_view path) {
  const Segments raw = split(path);
  std::array<std::string, kMaxSegments> decoded;
  for (size_t i = 0; i < raw.count; ++i) {
    std::optional<std::string> text = decode(raw.at[i]);
    if (!text) return std::nullopt;
    decoded[i] = std::move(*text);
  }
  const std::span<std::string> segments(decoded.data(), raw.count);
  for (size_t i = 0; i < kPatterns.size(); ++i) {
    const Segments& pattern = kPatterns[i];
    if (!fits(pattern, segments)) continue;
    RouteMatch match;
    match.info = &kRoutes[i];
    for (size_t j = 0; j < pattern.count; ++j) {
      if (pattern.at[j] == "{version}") match.version = std::move(segments[j]);
      if (pattern.at[j] == "{model}" || pattern.at[j] == "{region}") match.name = std::move(segments[j]);
    }
    return match;
  }
  return std::nullopt;
}

}  // namespace flywheel::http
