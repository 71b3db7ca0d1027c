// SPDX-License-Identifier: Apache-2.0
// Which calls need a header with a secret, and which headers become parameters of a request: what the command line says
// of both, for HTTP and gRPC alike. Thread safety: immutable once parsed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "flywheel/status.h"

namespace flywheel::settings {

enum class ApiCategory : uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};
inline constexpr size_t kApiCategories = 9;
// "health", "metadata", "inference", "shared-memory", ... as --http-restricted-api names them.
std::string_view api_category_name(ApiCategory category);

class RestrictedApis {
 public:
  // Each text is "<category>[,<category>...]:<header>=<value>". `flag` is named by errors. `header_prefix` comes before
  // each header's name: "triton-grpc-protocol-" for gRPC.
  static Result<RestrictedApis> parse(std::string_view flag, std::span<const std::string> texts,
                                      std::string_view header_prefix = {});

  bool restricts_any() const;
  // Finds a header of the request by its name, whatever its case.
  using FindHeader = std::function<std::optional<std::string_view>(std::string_view name)>;
  // Null: the call may go on. Otherwise the header that it lacks, or that has another value.
  const std::string* missing_header(ApiCategory category, const FindHeader& find) const;

 private:
  struct Key {
    std::string header, value;
  };
  std::array<std::optional<Key>, kApiCategories> keys_;
};

// Parameters that mean something to the server itself, which no header may set.
bool is_reserved_parameter(std::string_view name);

// Headers whose name contains a match of the expression, whatever its case.
class HeaderPattern {
 public:
  HeaderPattern() = default;  // none
  static Result<HeaderPattern> parse(std::string_view flag, const std::string& expression);
  bool is_empty() const { return expression_ == nullptr; }
  bool matches(std::string_view header_name) const;

 private:
  struct Expression;
  std::shared_ptr<const Expression> expression_;
};

}  // namespace flywheel::settings
